"""`import rmqtx` as a user of the library sees it."""
