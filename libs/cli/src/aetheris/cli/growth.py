"""More partitions for the topics that jobs lie in, without moving a job (docs/growing.md)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ssl import SSLContext

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.kafka import admin

TAKEN_WITHIN_S = 120.0
"""A group is shared out anew some ten seconds after its topics have grown, and commits once a second."""
_LOOK_S = 0.5
_OF_SERVICES = ("aetheris.planner", "aetheris.ledger", "aetheris.tool_executor", "aetheris.verifier")


@dataclass(frozen=True)
class GrowingInstallation:
    """Where its brokers are, and what stands before its names there."""

    bootstrap: str
    tls: SSLContext | None = None
    prefix: str = ""

    async def counts(self) -> Mapping[str, tuple[int, bool]]:
        """Topic → how many partitions it has, and whether it may be given more.

        Raises:
            CommandError: there is no installation here.
            LogUnreachable: no broker answers, or one refuses.
        """
        found = await admin.partition_counts(self.bootstrap, tls=self.tls, prefix=self.prefix)
        lacking = [name for name, (count, _) in found.items() if not count]
        if lacking:
            message = f"no broker knows {lacking[0]}: begin the installation first, or set AETHERIS_PREFIX"
            raise CommandError(Exit.BAD_INPUT, "no_topics", message)
        return found

    async def grow(self, count: int) -> list[str]:
        """Give the topics that may have more partitions up to `count`; those that had fewer.

        Raises:
            CommandError: there is no installation here, or one of them has more.
            LogUnreachable: no broker answers, or one refuses; asked again, it goes on where it stopped.
        """
        most = max(has for has, grows in (await self.counts()).values() if grows)
        if count < most:
            message = (
                f"there are {most} partitions, and none can be taken away: brokers don't, and jobs lie in them. "
                f"Name more than {most}"
            )
            raise CommandError(Exit.BAD_INPUT, "cannot_shrink", message, field="COUNT")
        return await admin.grow_topics(self.bootstrap, count, tls=self.tls, prefix=self.prefix)

    async def untaken(self, count: int) -> dict[str, list[int]]:
        """Service, by its group → the partitions that none of its processes has taken yet; none where it never ran."""
        marks = await admin.marks(self.bootstrap, Topic.JOBS_EVENTS, count, tls=self.tls, prefix=self.prefix)
        found = {group: sorted(set(range(count)) - of.keys()) for group, of in marks.items() if _is_service(group)}
        return {group: numbers for group, numbers in found.items() if numbers}

    async def wait_taken(self, count: int, within_s: float = TAKEN_WITHIN_S) -> dict[str, list[int]]:
        """What is left untaken when all is taken, or the time is over."""
        clock = SystemClock()
        until_s = clock.monotonic() + within_s
        while (left := await self.untaken(count)) and clock.monotonic() < until_s:
            await clock.sleep(_LOOK_S)
        return left


def first_of(counts: Mapping[str, tuple[int, bool]]) -> int:
    """How many partitions the installation began with: its tables still have as many."""
    return next(has for name, (has, _) in counts.items() if name.endswith(Topic.JOBS_INDEX))


def lacking(counts: Mapping[str, tuple[int, bool]], count: int) -> Collection[str]:
    """The topics that are to have so many partitions, and have fewer."""
    return [name for name, (has, grows) in counts.items() if grows and has < count]


def _is_service(group: str) -> bool:
    return any(group == one or group.startswith(f"{one}.") for one in _OF_SERVICES)
