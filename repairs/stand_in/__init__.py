"""Stand-in: a producer that answers a broker's checks in place of a producer group that no longer runs."""
