"""How things are said: numbers, times, durations, near names, progress, exit statuses."""
