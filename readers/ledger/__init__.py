"""Tables that are not a broker's: business ledgers in files, SQLite and databases.

Other folders use `ledger.read_ledger` and `databases`.
"""
