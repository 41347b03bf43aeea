"""The records of a commit log: walked, decoded, and told apart as halves, ops, finals and discard copies.

Other folders use `segment_scan` (a whole range), `record_at` (one record) and `transaction_records` (their tables).
"""
