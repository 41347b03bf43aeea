"""What an assistant gets from `rmqtx mcp`: answers in pages, text of producers marked, and the places it may read."""
