"""What the scheduler decides: pure."""
