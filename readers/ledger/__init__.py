"""Tables that no broker writes: business ledgers in files, SQLite and databases.

Other folders use `ledger.read_ledger` and `databases`.
"""
