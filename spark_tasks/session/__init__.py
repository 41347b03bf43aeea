"""The Spark session: given, started or connected; Java, memory, progress, errors."""
