"""Calls to external systems for tools and probes: one send, and a clear word on what is known of it."""
