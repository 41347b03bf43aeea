"""What the start of a broker does to a store: which records it keeps, what it loses, and why it would refuse."""
