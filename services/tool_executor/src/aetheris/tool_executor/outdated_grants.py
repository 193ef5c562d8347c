"""Grants that name an earlier activation than this executor goes by: of a call once is to be expected, twice is not.

A ledger that has read the barrier grants by it. Who drops a call's grants again and again counts activations otherwise
than its ledger, as where their settings name other roots: the call never begins (docs/deployment.md, "Upgrading").
"""

import structlog

from aetheris.protocol.messages.commands import ToolGrant
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.tool_executor.core.partition import EARLIER_POLICY, Drop
from aetheris.tool_executor.core.tries import DeclaredInvocation

MOST = 10_000
"""Calls that are remembered; the oldest is given up for the next."""

_log = structlog.get_logger(__name__)


class OutdatedGrants:
    """Of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._drops: dict[str, int] = {}

    def judged(self, grant: ToolGrant, verdict: DeclaredInvocation | Drop) -> None:
        """What became of a grant."""
        key = grant.idempotency_key
        if isinstance(verdict, DeclaredInvocation):
            self._drops.pop(key, None)
        if verdict != Drop(EARLIER_POLICY):
            return
        drops = self._drops.pop(key, 0) + 1
        self._drops[key] = drops
        if len(self._drops) > MOST:
            del self._drops[next(iter(self._drops))]
        if drops > 1:
            _log.warning("its ledger counts activations otherwise", job_id=grant.job_id, activation=grant.activation)
            self._metrics.count(Metric.GRANTS_DROPPED)

    def reported(self) -> int:
        """How many calls were dropped twice and have not begun since."""
        return sum(drops > 1 for drops in self._drops.values())
