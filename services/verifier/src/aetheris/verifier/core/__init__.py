"""What the verifier decides: pure."""
