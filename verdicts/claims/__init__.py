"""What a store's other files claim about its log, and which of these claims hold: a lost end, a hole, a foreign log.

Other folders ask `log_claims` before the log is read, and `lost_end` after.
"""
