"""What an assistant gets from `rmqtx mcp`: answers in pages, with marked text of producers; and the places."""
