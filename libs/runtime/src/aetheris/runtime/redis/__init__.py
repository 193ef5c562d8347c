"""Redis: leases, effects, wake-ups."""
