"""What the check of the next broker would do, round by round."""
