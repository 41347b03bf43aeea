"""Output of rows: tables for people, CSV, JSON, Parquet, Arrow."""
