"""Message traces: what producers wrote about their transactions into a topic of the same brokers."""
