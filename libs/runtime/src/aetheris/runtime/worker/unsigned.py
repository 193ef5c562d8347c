"""Messages that are not their writer's, told: who is told of a root obeys none of them."""

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.signed_messages import SignedMessages
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
            key = (record.key or b"").decode(errors="replace")
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            _log.warning("not signed by who may write it: nothing is done", type=name, key=key, **place)
            self._metrics.count(Metric.UNSIGNED, topic=record.topic, type=name)
        return counts
