"""Builds records and small stores from the declared layouts, and damages copies of real ones by name.

The forge shares our reading of the formats: what it makes is for tests of single rules, and the corpus of stores that
real brokers wrote is what proves the reading itself.
"""
