"""What the ledger decides: pure."""
