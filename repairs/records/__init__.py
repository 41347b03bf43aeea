"""Making records as a broker of a given release writes them."""
