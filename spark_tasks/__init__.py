"""The kernels of `readers` on Spark: a DataSource, and the jobs that read whole stores."""
