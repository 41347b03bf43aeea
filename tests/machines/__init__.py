"""State machines: Hypothesis draws steps, and after each one what rmqtx reports must be what happened."""
