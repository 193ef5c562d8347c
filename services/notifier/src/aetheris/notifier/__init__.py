"""Tells people what waits for them (docs/notices.md)."""
