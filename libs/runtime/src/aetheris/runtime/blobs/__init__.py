"""Large values, by their hash."""
