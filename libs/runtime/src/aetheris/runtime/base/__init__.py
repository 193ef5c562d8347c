"""Clock, ids, and the refusal to start."""
