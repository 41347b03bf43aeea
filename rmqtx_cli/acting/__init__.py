"""Shared code of commands that change transactions: options, confirmation, receipts, exit status."""
