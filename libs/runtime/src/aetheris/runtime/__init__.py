"""The only Kafka, Redis, clock and telemetry code."""
