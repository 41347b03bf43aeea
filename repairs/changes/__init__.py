"""Changes of a store's files: planned as a whole, made on a clone or in place, undone.

Only this folder opens a store's files for writing.
"""
