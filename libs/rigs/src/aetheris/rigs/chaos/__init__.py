"""`aetheris chaos`: jobs under seeded faults, counted by an outside server that deduplicates nothing."""
