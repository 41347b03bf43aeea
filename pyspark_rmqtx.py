"""Spark imports every top-level module named `pyspark_*` and registers the DataSources it finds: here `rmqtx`."""
