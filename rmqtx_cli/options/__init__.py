"""Options that commands share, each declared once, and how their values are read."""
