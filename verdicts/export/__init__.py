"""Verdicts and records as partitioned files, with a manifest."""
