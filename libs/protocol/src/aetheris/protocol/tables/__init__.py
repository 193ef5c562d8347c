"""What topics that are of no job say to all who have read them as far, and whose such messages are."""
