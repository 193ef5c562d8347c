"""Messages that are not their writer's, told: who is told of a root obeys none of them."""

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)


class HeardMessages:
    """Lets those through that count, and tells of the others, without what they say."""

    def __init__(self, messages: SignedMessages, metrics: Metrics) -> None:
        self._messages = messages
        self._metrics = metrics

    def counts(self, record: Record, name: str) -> bool:
        """Whether a record of a type is of who may write it."""
        counts = self._messages.counts(record.topic, name, record.key, record.value)
        if not counts:
            self._tell(record.topic, name, record.key, partition=record.partition, offset=record.offset)
        return counts

    def line_counts(self, topic: str, name: str, key: bytes, value: bytes) -> bool:
        """The same of a line of a table."""
        counts = self._messages.counts(topic, name, key, value)
        if not counts:
            self._tell(topic, name, key)
        return counts

    def _tell(self, topic: str, name: str, key: bytes | None, **place: int) -> None:
        shown = (key or b"").decode(errors="replace")
        _log.warning("not signed by who may write it: nothing is done", topic=topic, type=name, key=shown, **place)
        self._metrics.count(Metric.UNSIGNED, topic=topic, type=name)
