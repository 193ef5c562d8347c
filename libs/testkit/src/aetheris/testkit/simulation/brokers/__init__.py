"""Simulated brokers, for the real appender and the real reader: leaders that go, come back, and answer late."""
