"""A producer: registered with a broker, which sends it checks of transactions."""
