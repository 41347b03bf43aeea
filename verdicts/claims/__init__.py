"""Claims of a store's other files about its log, and which are true: they show a lost end, a hole or a foreign log.

Other folders call `log_claims` before the log is read, and `log_agreement` after; `records_read` does both
for a reading of records.
"""
