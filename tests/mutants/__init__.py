"""What each condition is for: turned or taken out, one at a time, and found or explained (docs/mutants.md)."""
