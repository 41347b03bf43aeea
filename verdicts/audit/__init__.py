"""Entry points: `local_audit` reads whole logs, `lookups` reads for `pending` and `show` by queues and index."""
