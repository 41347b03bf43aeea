"""Connections to name servers and brokers, and the requests that read."""
