"""Plans: acts on many transactions, written to a file for review and applied step by step."""
