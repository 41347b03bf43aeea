"""A new store from what a damaged one still has."""
