"""What an assistant gets from `rmqtx mcp`: answers in pages, with text of producers marked, and the places it may read."""
