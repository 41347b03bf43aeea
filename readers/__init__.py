"""Read the bytes of a RocketMQ store into Arrow tables.

No code in this package can change a store, and none depends on a command line, Spark or RocketMQ's network.
"""
