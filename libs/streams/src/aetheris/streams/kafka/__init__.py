"""The log on Kafka, by aiokafka: its traps are closed here (docs/architecture.md, "The log")."""

from aetheris.streams.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
