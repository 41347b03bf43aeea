"""Bundles: a part of a store to pass on, with chosen records and what their verdicts need, redacted."""
