"""Derived files written again from the log: queues, index, checkpoint, state table."""
