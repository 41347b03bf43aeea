"""The records of every change: plans, the journal, receipts, saved messages, and rechecks of their effects."""
