"""When the check gives up on each open transaction."""
