"""Consume queues in files: their slots, their extension, and what a split of the log knows of them.

Other folders use `consume_queue.open_queue` and `slot_files`.
"""
