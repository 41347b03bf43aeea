"""The RocksDB databases of brokers from 5.2 on: queues, transactions, and their slots.

They are opened through a folder of hard links, never in place.
"""
