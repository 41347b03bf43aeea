"""Missing ranges of a log, and their former content as far as queues, index and redo log show it."""
