"""Holds and drains: settings with which running brokers discard no half message, or take none; and their end."""
