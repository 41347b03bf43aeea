"""Proofs: for each verdict the places and digests of the records that show it, so that a second party can check it."""
