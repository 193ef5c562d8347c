"""The log on Kafka: records by own requests, the rest by aiokafka (docs/adr/0005-own-requests-for-records.md)."""

from aetheris.runtime.kafka import coordination, metadata, refused_tokens
from aetheris.runtime.kafka.log import KafkaLog

__all__ = ["KafkaLog"]

coordination.mend()
metadata.mend()
refused_tokens.mend()
