"""`aetheris chaos`: jobs under seeded faults, counted by an external server that deduplicates nothing."""
