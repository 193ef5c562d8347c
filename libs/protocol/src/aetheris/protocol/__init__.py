"""Messages, ids, keys, plans and the fold of a job's log (pure)."""
