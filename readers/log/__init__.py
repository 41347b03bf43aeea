"""The records of a commit log: found, decoded, and classified as half, op and discard copies and COMMIT records.

Other folders use `segment_scan` (a whole range), `record_at` (one record) and `transaction_records` (their tables).
"""
