"""What the tables of `readers` mean: each transaction's state, whether a store is whole, what its broker does next.

Nothing here can change a store, and nothing knows a command line, Spark or RocketMQ's network.
Bottom to top: model → ledger, missing → claims → ends → startup → check → evidence → transactions → simulation →
deadlines → audit, follow → verify → export.
"""
