"""What stands by itself: canonical JSON, ids, keys, records, references."""
