"""Bytes of a RocketMQ store → Arrow tables → verdicts.

Nothing in this package can change a store, and nothing in it knows a command line, Spark or RocketMQ's network.
"""
