"""Commands that create or repair files of a store."""
