"""Live brokers as a source of the same tables.

`lookups` does for brokers what `rmqtx.verdicts.audit.lookups` does for files.
"""
