"""Spark imports every top-level module named `pyspark_*` and registers the DataSource it finds there: here `rmqtx`."""

from rmqtx.spark_tasks.data_source import RmqtxDataSource as DefaultSource

__all__ = ["DefaultSource"]
