"""All that is known of a store's transactions, gathered: by a scan of the log or by its index and queues.

`store_facts` is asked first, `witness_scan` and `indexed_lookup` bring records, `store_conclusion` says what is
missing.
"""
