"""How jobs look to those who read: projections of the log."""
