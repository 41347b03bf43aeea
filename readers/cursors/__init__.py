"""The cursors of consumer groups, in JSON files and in RocksDB.

Other folders use `cursors.check_cursors`.
"""
