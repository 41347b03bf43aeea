"""Rebuilding derived files from the log: queues, index, checkpoint, state table."""
