"""A slice of a store for other eyes: chosen records with their surroundings, redacted."""
