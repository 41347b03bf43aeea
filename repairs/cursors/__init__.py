"""Setting the cursors of the transaction check."""
