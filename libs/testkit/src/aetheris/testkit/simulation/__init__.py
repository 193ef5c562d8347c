"""The real cores and the real fold on a simulated log, in virtual time, under seeded faults (docs/simulation.md)."""
