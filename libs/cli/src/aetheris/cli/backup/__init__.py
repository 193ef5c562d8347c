"""Backups of an installation: taken while it runs, laid into an empty one behind a fence (docs/backup.md)."""
