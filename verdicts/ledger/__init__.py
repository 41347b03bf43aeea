"""Transactions compared with a business ledger: how rows match, and the advice for each pair."""
