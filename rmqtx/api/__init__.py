"""The programming interface: what `import rmqtx` offers. It prints nothing, never exits and sets no signal handler.

Its names are those of `rmqtx.__all__`; the modules here may change.
"""
