"""What a round has found out that people should hear of: the log, the metrics, /readyz."""

import structlog

from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.outbox import Outbox
from aetheris.ledger.quarantines import ProcessQuarantines
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.commands import PolicyActivation
from aetheris.protocol.planning.policy import Policy
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.runtime.worker.unjudged import report_unjudged

_log = structlog.get_logger(__name__)


class OperatorLog:
    """Of one partition."""

    def __init__(
        self, number: int, partition: Partition, quarantines: ProcessQuarantines, metrics: Metrics, outgoing: Outbox
    ) -> None:
        self._number = number
        self._partition = partition
        self._quarantines = quarantines
        self._metrics = metrics
        self._outgoing = outgoing

    async def begin(self) -> None:
        """Who had the partition before has told of what lies in its history, and knew of other quarantines."""
        self._partition.contradictions.clear()
        self._partition.emergencies.clear()
        await self._quarantines.begin(self._number)

    async def report(self) -> None:
        """Everything that was found out since the last time."""
        report_unjudged(self._partition.unjudged, self._metrics)
        words = self._partition.quarantine.changes
        if words:
            self._partition.quarantine.changes = []
            await self._quarantines.report(self._number, words)
        self._report_ignored()
        self._report_contradictions()
        self._report_emergencies()

    def close(self) -> None:
        """Somebody else has the partition."""
        self._quarantines.close(self._number)

    def _report_ignored(self) -> None:
        for reported in self._partition.ignored:
            _log.warning(
                "a person's word decides nothing", job_id=reported.job_id, command=reported.command_id, why=reported.why
            )
        self._partition.ignored.clear()

    def _report_contradictions(self) -> None:
        for event in self._partition.contradictions:
            _log.error(
                "a success contradicts what was settled", job_id=event.job_id, node_id=event.node_id, via=event.via
            )
            traceparent = self._outgoing.traceparent(event.job_id, event.idempotency_key)
            self._metrics.count(Metric.CONTRADICTED, traceparent=traceparent, via=event.via.value)
        self._partition.contradictions.clear()

    def _report_emergencies(self) -> None:
        for event in self._partition.emergencies:
            principal: RecordedPrincipal | None = getattr(event, "principal", None)
            by = principal.id if principal is not None else ""
            _log.error("somebody broke the glass: decided alone", job_id=event.job_id, what=event.event_type, by=by)
            self._metrics.count(Metric.GLASS_BROKEN, what=event.event_type)
        self._partition.emergencies.clear()


def report_activation(activation: PolicyActivation, policies: PolicyInForce, configured: Policy) -> None:
    """What decides from now on; and that the configured file does not, where it says something else."""
    named = {"activation": activation.number, "policy_hash": activation.policy_hash, "by": activation.by}
    if policies.unusable is None:
        _log.info("a policy was activated", **named)
    else:
        _log.error("nothing is decided", why=policies.unusable, **named)
    if activation.policy_hash != configured.hash:
        warning = f"the configured policy file is not used: activation {activation.number} decides"
        _log.warning(warning, configured=configured.hash, activated=activation.policy_hash)


def report_forged_barrier(partition: int, policies: PolicyInForce) -> None:
    """Somebody with a ledger's key wrote it, or its activation's root is not told here any more."""
    _log.warning(
        "a barrier names an activation that the topic of policies does not have: it holds nothing",
        partition=partition,
        known=policies.number,
    )


def report_missing(partition: int, activation: int, policies: PolicyInForce, metrics: Metrics) -> None:
    """Jobs whose decisions name an activation that is not in its topic are held until it is."""
    _log.error(
        "jobs are held: their decisions name an activation that the topic of policies does not have",
        partition=partition,
        activation=activation,
        known=policies.number,
    )
    metrics.count(Metric.UNJUDGED, error="UnknownActivation")
