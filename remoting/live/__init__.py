"""A live broker as one more source of the same tables.

`lookups` answers what `verdicts.audit.lookups` answers for files.
"""
