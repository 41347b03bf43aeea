"""Consume queues in files: their slots, their extension, and how a split of the log agrees with them.

Other folders use `consume_queue.open_queue`, `slot_files` and `unit_files`.
"""
