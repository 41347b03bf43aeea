"""When the check discards each open transaction."""
