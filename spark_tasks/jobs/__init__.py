"""Jobs on Spark: audit, diff, reconcile, search."""
