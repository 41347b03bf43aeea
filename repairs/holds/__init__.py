"""Holds: raising the limits by which running brokers discard open half messages, and putting them back."""
