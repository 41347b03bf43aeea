"""`rmqtx decode KIND`: what prints the structures in a file."""
