"""Real `rmqtx` processes that are killed by SIGKILL while they change a store, and what is left to be mended."""
