"""Redis: leases, effects, bells."""
