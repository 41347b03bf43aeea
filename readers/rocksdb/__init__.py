"""The RocksDB databases of brokers from 5.2 on: queues with their slots, and transactions.

Cursors in RocksDB are in `rmqtx.readers.cursors`.

They are opened through a folder of hard links, never in place.
"""
