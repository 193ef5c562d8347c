"""What the notifier decides: pure."""
