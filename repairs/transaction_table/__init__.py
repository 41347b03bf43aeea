"""Rows of the database table t_transaction, changed and restored."""
