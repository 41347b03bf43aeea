"""Which ranges of a log are missing, and what the queues, the index and the redo log know of what stood there."""
