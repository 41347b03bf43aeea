"""The questions: `local_audit` reads whole logs, `lookups` answers pending and show by the index."""
