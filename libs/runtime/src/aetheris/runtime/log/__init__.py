"""What services need of a log: reading, tables, history."""
