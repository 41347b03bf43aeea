"""The questions on Spark: audit, diff, reconcile, search."""
