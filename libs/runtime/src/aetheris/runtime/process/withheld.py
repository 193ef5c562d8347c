"""What the brokers refuse for what it holds: kept from harm to others, told, and offered again ever more rarely."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from aetheris.protocol.base.records import Draft, Group
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import AppendRefused, GroupTooLarge, RefusedGroup, Writer
from aetheris.runtime.log.partitioning import weigh
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
MOST_KEPT = 10_000
_SHOWN = 20


async def write_all(writer: Writer, groups: Sequence[Group]) -> Sequence[RefusedGroup]:
    """Append every group that can be written; those that can't, by the brokers' word or for their size."""
    try:
        await writer.append(groups)
    except AppendRefused as refused:
        return refused.refusals
    except GroupTooLarge:  # nothing was written
        sizes = [(group, _fits(group)) for group in groups]
        too_large = [RefusedGroup(group, GroupTooLarge.__name__) for group, fits in sizes if not fits]
        return [*too_large, *await write_all(writer, [group for group, fits in sizes if fits])]
    return ()


@dataclass(slots=True)
class _Kept:
    group: Group
    why: str
    due_s: float
    pause_s: float


class Withheld:
    """Appends; a group that is refused stops only its own job, and goes on once the brokers take it.

    In memory: after a restart its writer decides again from the log, and comes to the same group.
    """

    def __init__(self, writer: Writer, clock: Clock, metrics: Metrics) -> None:
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._kept: dict[tuple[str, bytes, bytes], _Kept] = {}
        self._offering: asyncio.Task[None] | None = None

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group that can be written; the others are kept, and told.

        Raises:
            MixedGroup: nothing was written.
        """
        for refusal in await write_all(self._writer, groups):
            self.keep(refusal)

    def keep(self, refusal: RefusedGroup) -> None:
        """Offer it again, later and later; what is too large for any batch only waits to be seen."""
        first = refusal.group[0]
        name = _name(first)
        before = self._kept.get(name)
        if before is None:
            job_id = first.key.decode(errors="replace")
            _log.error("a record is refused: its job waits", job_id=job_id, topic=first.topic, reason=refusal.why)
            self._metrics.count(Metric.REFUSED, topic=first.topic, reason=refusal.why)
            if len(self._kept) >= MOST_KEPT:
                return
        pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.pause_s)
        self._kept[name] = _Kept(refusal.group, refusal.why, self._clock.monotonic() + pause_s, pause_s)
        if self._offering is None:
            self._offering = asyncio.create_task(self._offer())

    def reported(self) -> Mapping[str, object]:
        """How many groups wait, and some of them."""
        shown = [
            {"job_id": key.decode(errors="replace"), "topic": topic, "reason": one.why}
            for (topic, key, _), one in list(self._kept.items())[:_SHOWN]
        ]
        return {"count": len(self._kept), "groups": shown}

    async def close(self) -> None:
        """Offer nothing any more."""
        if self._offering is not None:
            self._offering.cancel()
            await asyncio.gather(self._offering, return_exceptions=True)

    async def _offer(self) -> None:
        while offered := {name: one for name, one in self._kept.items() if _fits(one.group)}:
            wait_s = min(one.due_s for one in offered.values()) - self._clock.monotonic()
            await self._clock.sleep(max(wait_s, 0.1))
            now_s = self._clock.monotonic()
            for name, one in offered.items():
                if one.due_s <= now_s and self._kept.get(name) is one:
                    await self._offer_again(name, one)
        self._offering = None

    async def _offer_again(self, name: tuple[str, bytes, bytes], one: _Kept) -> None:
        refusals = await write_all(self._writer, [one.group])
        if refusals:
            self.keep(refusals[0])
        else:
            del self._kept[name]
            _log.info("a record is refused no longer", job_id=name[1].decode(errors="replace"), topic=name[0])


def _name(draft: Draft) -> tuple[str, bytes, bytes]:
    return draft.topic, draft.key, next((value for header, value in draft.headers if header == "ce_id"), b"")


def _fits(group: Group) -> bool:
    try:
        weigh(group)
    except GroupTooLarge:
        return False
    return True
