"""Traces and metrics."""
