"""Real stores, damaged at random, read by everything that reads: no crash, no hang, no flood, no lost byte."""
