"""The records that COMMIT, ROLLBACK and op records name: their own half, another record, or none."""
