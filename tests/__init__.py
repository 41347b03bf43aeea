"""The tests of rmqtx, what they are made of, and the stores they read."""
