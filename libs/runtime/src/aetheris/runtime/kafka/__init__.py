"""The log on Kafka: records by own requests, the rest by aiokafka (docs/adr/0005-own-requests-for-records.md)."""

from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.kafka.metadata import mend

__all__ = ["KafkaLog"]

mend()
