"""Quarantines of tools, told to people: the log, the metrics, /readyz, and Redis for the gateway."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import structlog

from aetheris.ledger.core.quarantine import QuarantineChange, TenantTool
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.quarantines import Quarantined
from aetheris.runtime.redis.quarantines import QuarantineStore as Shown
from aetheris.runtime.telemetry.metrics import Metric, Metrics

MOST_TOLD = 20

_log = structlog.get_logger(__name__)


class ProcessQuarantines:
    """What the cores of a process's partitions have found; one for a process."""

    def __init__(self, redis: Redis, metrics: Metrics, clock: Clock) -> None:
        self._shown = Shown(redis)
        self._metrics = metrics
        self._clock = clock
        self._found: dict[int, dict[TenantTool, Quarantined]] = {}

    async def begin(self, partition: int) -> None:
        """Who had the partition before knew of other ones."""
        self._found.pop(partition, None)
        await self._show(partition)

    async def report(self, partition: int, words: Sequence[QuarantineChange]) -> None:
        """What has become of them."""
        found = self._found.setdefault(partition, {})
        for action in words:
            _report(action)
            if action.what in ("begun", "prolonged"):
                self._metrics.count(Metric.QUARANTINED, tool=action.tool.name)
            if action.what in ("ended", "released"):
                found.pop(action.tool, None)
            else:
                found[action.tool] = Quarantined(*action.tool, _text(action), action.failures)
        await self._show(partition)

    def close(self, partition: int) -> None:
        """Somebody else has the partition."""
        self._found.pop(partition, None)

    def reported(self) -> list[dict[str, Any]]:
        """Those that are not over, for /readyz; the first ones are enough."""
        now = self._clock.now().isoformat()
        found = {tool: one for subject in self._found.values() for tool, one in subject.items() if one.until > now}
        return [{"tenant": one.tenant, "tool": one.tool, "said": one.reported} for one in found.values()][:MOST_TOLD]

    async def _show(self, partition: int) -> None:
        try:
            await self._shown.show(partition, tuple(self._found.get(partition, {}).values()))
        except RedisUnavailable:
            _log.info("redis does not answer: quarantines are not shown", partition=partition)


def _report(action: QuarantineChange) -> None:
    body = {"tool": action.tool.name, "tenant": action.tool.tenant, "failures": action.failures}
    match action.what:
        case "begun" | "prolonged":
            _log.warning("a tool is in quarantine: its calls wait", **body, until=_text(action))
        case "trying":
            _log.info("a call of a tool in quarantine is tried", **body)
        case "ended":
            _log.info("a tool is out of quarantine", **body)
        case "released":
            _log.info("a tool is released from quarantine by a person", **body)


def _text(action: QuarantineChange) -> str:
    return action.until.astimezone(UTC).isoformat(timespec="milliseconds")
