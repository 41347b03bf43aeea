"""The command `rmqtx`: parse, call, print. It decodes no bytes and contains no rules.

Importing this package, and `rmqtx --help`, load neither pyarrow nor numpy nor pyspark: commands import what they call
when they run (a test holds that), because an operator's shell should answer at once.
"""
