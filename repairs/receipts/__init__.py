"""What is kept of every change: plans, the journal, receipts, saved messages, and whether an effect still stands."""
