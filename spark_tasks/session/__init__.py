"""The Spark session: found, made, or given; Java, memory, progress, errors, signals."""
