"""Audits every job's stream, probes, seals, proves."""
