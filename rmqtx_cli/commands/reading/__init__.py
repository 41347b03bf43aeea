"""Commands that read."""
