"""Starts jobs: when it is time, and when a message comes (docs/schedules.md)."""
