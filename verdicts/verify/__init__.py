"""Verification: whether all structures of a store agree with each other."""
