"""`rmqtx watch`: a live screen of pending transactions: readings, model, keys, drawing, and the loop around them."""
