"""Keys of the people whose values are hidden, and what is hidden with them (docs/hidden-values.md)."""
