"""A producer: registered with a broker, which asks it about transactions."""
