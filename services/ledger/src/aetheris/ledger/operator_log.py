"""What a round has found out that people should hear of: the log, the metrics, /readyz."""

import structlog

from aetheris.ledger.core.partition import Partition
from aetheris.ledger.outgoing import Outgoing
from aetheris.ledger.quarantines import Quarantines
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.worker.unjudged import tell_unjudged

_log = structlog.get_logger(__name__)


class OperatorLog:
    """Of one partition."""

    def __init__(
        self, number: int, partition: Partition, quarantines: Quarantines, metrics: Metrics, outgoing: Outgoing
    ) -> None:
        self._number = number
        self._partition = partition
        self._quarantines = quarantines
        self._metrics = metrics
        self._outgoing = outgoing

    async def begin(self) -> None:
        """Who had the partition before has told of what lies in its history, and knew of other quarantines."""
        self._partition.contradictions.clear()
        await self._quarantines.begin(self._number)

    async def tell(self) -> None:
        """Everything that was found out since the last time."""
        tell_unjudged(self._partition.unjudged, self._metrics)
        words = self._partition.quarantine.words
        if words:
            self._partition.quarantine.words = []
            await self._quarantines.tell(self._number, words)
        self._tell_unheard()
        self._tell_contradictions()

    def close(self) -> None:
        """Somebody else has the partition."""
        self._quarantines.close(self._number)

    def _tell_unheard(self) -> None:
        for said in self._partition.unheard:
            _log.warning("a person's word decides nothing", job_id=said.job_id, command=said.command_id, why=said.why)
        self._partition.unheard.clear()

    def _tell_contradictions(self) -> None:
        for said in self._partition.contradictions:
            _log.error("a success contradicts what was settled", job_id=said.job_id, node_id=said.node_id, via=said.via)
            traceparent = self._outgoing.traceparent(said.job_id, said.idempotency_key)
            self._metrics.count(Metric.CONTRADICTED, traceparent=traceparent, via=said.via.value)
        self._partition.contradictions.clear()
