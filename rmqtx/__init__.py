"""The library of rmqtx; `rmqtx.spark` is its programming interface for Spark.

In a checkout its packages are links to folders beside this one: `rmqtx/readers` is `readers/`. They have no other name
than `rmqtx.readers`; a module that is imported by another one too is loaded twice, and its classes differ.
"""
