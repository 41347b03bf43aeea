"""Tables of verdicts that grow: a step changes the rows of the transactions that changed, and keeps the old ones."""
