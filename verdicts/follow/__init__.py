"""The audit of growing stores: what was read is kept in a checkpoint file, and only new data is read."""
