"""Real brokers, the official client and the official consumer decide whether a forced decision was right."""
