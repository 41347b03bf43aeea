"""Proofs of verdicts, and which alterations are found."""
