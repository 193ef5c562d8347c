"""Who may run: one fold of a job's records, the same for everyone."""
