"""Real `rmqtx` processes that are killed by SIGKILL while they change a store, and the repair of what they leave."""
