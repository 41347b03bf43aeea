"""The audit of stores that grow: what was read is kept in a checkpoint, and only what is new is read."""
