"""The RocksDB databases of brokers from 5.2 on: queues, transactions, and their slots.

Opened through a copy of hard links, never in place.
"""
