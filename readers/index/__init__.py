"""Index files: their entries, the look-up of one key, and which keys a record has.

Other folders use `index_search` (a key) and `index` (a file).
"""
