"""How far each group has read: cursors in JSON files and in RocksDB.

Other folders use `cursors.check_cursors`.
"""
