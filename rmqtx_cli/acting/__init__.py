"""What the commands that change something share: their options, their question, their status."""
