"""Calls to the outside for tools and probes: one send, and a clear word on what is known of it."""
