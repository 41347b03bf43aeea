"""Transactions against the business ledger: how rows match, and what to do about each pair."""
