"""`rmqtx doctor`: what this installation has and lacks, and the same of Spark's executors."""
