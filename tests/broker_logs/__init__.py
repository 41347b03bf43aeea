"""Logs of real brokers of six releases, and forged ones.

logs/ is shortened, addresses and paths of the machine are replaced. The brokers ran with small intervals: producers
that left, answers of each kind, refused decisions, messages with delays, properties at the limit (5.5.0), a slow
transient pool (5.3.3), messages that the check cannot read (4.3.0, 4.5.0).
"""
