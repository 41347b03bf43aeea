"""`rmqtx exporter`: readings on their own clock in processes of their own, and the web server that serves the last."""
