"""What the executor decides: pure."""
