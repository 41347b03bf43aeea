"""Entry points: `local_audit` reads whole logs, `lookups` serves pending and show by the index."""
