"""Rows to people and machines: tables, CSV, JSON, Parquet, Arrow."""
