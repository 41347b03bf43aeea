"""Commands about the installation: test it, and prepare that of Spark's executors."""
