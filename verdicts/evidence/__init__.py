"""Collects the evidence for a store's transactions, by a scan of the log or by its index and queues.

`store_facts` comes first, `witness_scan` and `indexed_lookup` read records, `store_conclusion` determines what is
missing.
"""
