"""`probe`: a transaction of our own, from half to end, on a live broker."""
