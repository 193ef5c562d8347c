"""Chain, hashes, ledger and replay proof, seals (pure, offline)."""
