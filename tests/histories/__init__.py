"""Histories: the brokers' own classes write stores step by step, and what rmqtx says of these stores is compared.

`machine`: one JVM of a release. `steps`: what can happen. `truth`: what did happen. `comparing`: what is compared.
"""
