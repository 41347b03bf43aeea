"""Connections to name servers and brokers, and their requests."""
