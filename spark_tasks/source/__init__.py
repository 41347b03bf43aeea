"""The data source `format("rmqtx")`: options, pushdown, scans and streams."""
