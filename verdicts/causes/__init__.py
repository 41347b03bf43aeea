"""Causes: why transactions are unusual, by release, with the records that show it.

`register.py` has all causes, a file for each family declares them, and `diagnosing.py` applies them to judged
transactions. Rules read columns of TRANSACTIONS and facts of a store (`evidence.py`), for all rows at once.
"""
