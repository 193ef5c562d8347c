"""What runs a whole system to show, to break or to measure it."""
