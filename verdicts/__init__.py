"""Conclusions from the tables of `readers`: each transaction's state, damage of a store, the broker's next actions.

Nothing here can change a store, and nothing depends on the command line, Spark or RocketMQ's network.
Each folder imports only folders before it: model, ledger, missing, claims, ends, startup, compared, check,
simulation, deadlines, evidence, transactions, causes, audit and follow, verify, proofs, export, growing.
"""
