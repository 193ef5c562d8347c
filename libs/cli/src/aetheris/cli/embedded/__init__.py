"""The embedded runtime: a real Kafka broker, a real Valkey and the services on one machine."""
