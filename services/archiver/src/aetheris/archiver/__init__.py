"""Writes sealed jobs as Parquet, for queries (docs/query.md)."""
