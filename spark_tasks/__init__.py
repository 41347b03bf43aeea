"""The readers on Spark: a data source, and the jobs that read whole stores."""
