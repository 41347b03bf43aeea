"""What COMMIT, ROLLBACK and op records name: their own half, another record, or nothing at all."""
