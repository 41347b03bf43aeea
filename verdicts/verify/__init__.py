"""Whether every structure of a store agrees with every other."""
