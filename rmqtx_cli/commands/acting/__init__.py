"""Commands that settle transactions."""
