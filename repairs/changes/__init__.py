"""Changes of a store's files: planned as a whole, made on a clone or in place, undone.

The only folder that opens a store's files for writing.
"""
