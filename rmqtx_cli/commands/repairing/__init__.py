"""Commands that make or mend files of a store."""
