"""Index files: their entries, the look-up of a key, and the keys of a record.

Other folders use `index_search` (a key) and `index` (a file).
"""
