"""Text for people: messages, numbers, times, durations, suggestions, progress, exit statuses."""
