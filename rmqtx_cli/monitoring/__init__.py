"""`rmqtx check` and `rmqtx probe`: measure, judge, compare with the last run, print."""
