"""Quarantines of tools, told to people: the log, the metrics, /readyz, and Redis for the gateway."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import structlog

from aetheris.ledger.core.quarantine import Tool, Word
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.quarantines import Quarantined
from aetheris.runtime.redis.quarantines import Quarantines as Shown
from aetheris.runtime.telemetry.metrics import Metric, Metrics

MOST_TOLD = 20

_log = structlog.get_logger(__name__)


class Quarantines:
    """What the cores of a process's partitions have found; one for a process."""

    def __init__(self, redis: Redis, metrics: Metrics, clock: Clock) -> None:
        self._shown = Shown(redis)
        self._metrics = metrics
        self._clock = clock
        self._found: dict[int, dict[Tool, Quarantined]] = {}

    async def begin(self, partition: int) -> None:
        """Who had the partition before knew of other ones."""
        self._found.pop(partition, None)
        await self._show(partition)

    async def tell(self, partition: int, words: Sequence[Word]) -> None:
        """What has become of them."""
        found = self._found.setdefault(partition, {})
        for word in words:
            _tell(word)
            if word.what in ("begun", "prolonged"):
                self._metrics.count(Metric.QUARANTINED, tool=word.tool.name)
            if word.what in ("ended", "released"):
                found.pop(word.tool, None)
            else:
                found[word.tool] = Quarantined(*word.tool, _text(word), word.failures)
        await self._show(partition)

    def close(self, partition: int) -> None:
        """Somebody else has the partition."""
        self._found.pop(partition, None)

    def told(self) -> list[dict[str, Any]]:
        """Those that are not over, for /readyz; the first ones are enough."""
        now = self._clock.now().isoformat()
        found = {tool: one for of in self._found.values() for tool, one in of.items() if one.until > now}
        return [{"tenant": one.tenant, "tool": one.tool, "said": one.said} for one in found.values()][:MOST_TOLD]

    async def _show(self, partition: int) -> None:
        try:
            await self._shown.show(partition, tuple(self._found.get(partition, {}).values()))
        except RedisUnavailable:
            _log.info("redis does not answer: quarantines are not shown", partition=partition)


def _tell(word: Word) -> None:
    said = {"tool": word.tool.name, "tenant": word.tool.tenant, "failures": word.failures}
    match word.what:
        case "begun" | "prolonged":
            _log.warning("a tool is in quarantine: its calls wait", **said, until=_text(word))
        case "trying":
            _log.info("a call of a tool in quarantine is tried", **said)
        case "ended":
            _log.info("a tool is out of quarantine", **said)
        case "released":
            _log.info("a tool is released from quarantine by a person", **said)


def _text(word: Word) -> str:
    return word.until.astimezone(UTC).isoformat(timespec="milliseconds")
