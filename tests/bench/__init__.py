"""Aetheris and its peers, measured in one run: `make bench` (docs/performance.md)."""
