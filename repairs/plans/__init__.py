"""Many acts, reviewed first: a plan, and its steps one after another."""
