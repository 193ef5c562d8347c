"""The in-memory log with faults."""
