"""Mutants: small faults put into a copy of the product, one at a time; a test must fail for each (`make mutants`)."""
