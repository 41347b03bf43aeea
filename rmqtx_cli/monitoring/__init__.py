"""What `rmqtx check` is made of: numbers, memory of the last run, thresholds, and three ways to say the outcome."""
