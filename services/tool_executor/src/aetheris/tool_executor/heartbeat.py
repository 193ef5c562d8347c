"""Heartbeats: the leases of all grants in hand, renewed by a thread of its own. Safety never rests on them.

A tool that computes on the event loop holds up nobody's lease. None is renewed for ever: not beyond its call's time,
and not by a process that can't report, because its appends stay unacknowledged or its event loop doesn't turn.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from aetheris.protocol.base.records import Group
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Writer
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.sdk.remains import know


@dataclass(slots=True)
class _Held:
    """A lease in hand: of which partition, by how many grants, and until when it may be renewed."""

    place: object
    holders: int = 0
    until_s: float = float("inf")


class _Appending:
    """A block in which an append is under way. One is made for each: a generator's context is dearer."""

    __slots__ = ("_begun", "_lock", "_number", "_under_way")

    def __init__(
        self,
        lock: threading.Lock,
        under_way: dict[int, tuple[object, float]],
        number: int,
        begun: tuple[object, float],
    ) -> None:
        self._lock, self._under_way, self._number, self._begun = lock, under_way, number, begun

    def __enter__(self) -> None:
        with self._lock:
            self._under_way[self._number] = self._begun

    def __exit__(self, *_: object) -> None:
        with self._lock:
            del self._under_way[self._number]


class Heartbeat:
    """The leases that this process holds; the event loop says which, under a lock."""

    def __init__(self, leases: Leases, ttl_s: float, clock: Clock, patience_s: float) -> None:
        self._leases = leases
        self._ttl_s = ttl_s
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._held: dict[Lease, _Held] = {}
        self._appends: dict[int, tuple[object, float]] = {}
        self._numbers = count()
        self._turned_s = clock.monotonic()
        self._over = False
        self.conflicts = 0
        """How often a lease turned out to be somebody else's."""

    def hold(self, idempotency_key: str, lease_id: str, place: object = None) -> None:
        """Renew this lease of a partition until every holder has let go: a grant may come twice."""
        lease = Lease(idempotency_key, lease_id, self._ttl_s)
        with self._lock:
            held = self._held.get(lease)
            if held is None:
                held = self._held[lease] = _Held(place)
            held.holders, held.place = held.holders + 1, place

    def begin(self, idempotency_key: str, lease_id: str, lasts_s: float) -> None:
        """Its call begins, and lasts so long at most; what it comes to is reported soon after, or never."""
        until_s = self._clock.monotonic() + lasts_s + self._patience_s
        with self._lock:
            held = self._held.get(Lease(idempotency_key, lease_id, self._ttl_s))
            if held is not None:
                held.until_s = until_s

    def let_go(self, idempotency_key: str, lease_id: str) -> None:
        """One holder less; without any, the lease lapses."""
        lease = Lease(idempotency_key, lease_id, self._ttl_s)
        with self._lock:
            held = self._held.get(lease)
            if held is None:
                return
            held.holders -= 1
            if held.holders < 1:
                del self._held[lease]

    def appending(self, place: object = None) -> "_Appending":
        """An append to a partition is under way until the block ends."""
        return _Appending(self._lock, self._appends, next(self._numbers), (place, self._clock.monotonic()))

    async def run(self, url: str, prefix: str = "") -> None:
        """Renew three times in the life of a lease, by a connection of the thread's own, until cancelled.

        Raises:
            RuntimeError: the thread has ended by a fault of ours.
        """
        thread = threading.Thread(target=lambda: asyncio.run(self._renew(url, prefix)), name="heartbeat", daemon=True)
        know(thread)
        thread.start()
        try:
            while thread.is_alive():
                self.turn()
                await self._clock.sleep(self._ttl_s / 3)
        finally:
            self._over = True
        raise RuntimeError("the heartbeat has ended")

    def show(self, metrics: Metrics) -> None:
        """How many leases it renews, and how many it has lost."""
        metrics.watch(Metric.LEASES, lambda: len(self._held))
        metrics.watch(Metric.LEASE_CONFLICTS, lambda: self.conflicts, grows=True)

    def turn(self) -> None:
        """The event loop has turned."""
        self._turned_s = self._clock.monotonic()

    async def beat(self) -> None:
        """Renew all leases once that may be, as far as Redis is there."""
        leases = self._due()
        if not leases:
            return
        try:
            renewed = await self._leases.extend(leases)
        except RedisUnavailable:
            return
        self.conflicts += renewed.count(False)

    async def _renew(self, url: str, prefix: str) -> None:
        redis = Redis(url, prefix=prefix)
        self._leases = Leases(redis)
        try:
            while not self._over:
                await self.beat()
                await self._clock.sleep(self._ttl_s / 3)
        finally:
            await redis.close()

    def _due(self) -> list[Lease]:
        now_s = self._clock.monotonic()
        since_s = now_s - self._patience_s
        with self._lock:
            if self._turned_s < since_s:
                return []
            silent = {id(place) for place, begun_s in self._appends.values() if begun_s < since_s}
            held = self._held.items()
            return [lease for lease, subject in held if now_s <= subject.until_s and id(subject.place) not in silent]


class Watched:
    """A partition's writer, whose appends are timed, and lie in it: where a job lies its grant says by its place."""

    def __init__(self, writer: Writer, heartbeat: Heartbeat, place: object, partition: int) -> None:
        self._writer = writer
        self._heartbeat = heartbeat
        self._place = place
        self._partition = partition

    async def append(self, groups: Sequence[Group]) -> None:
        """As the writer's own."""
        for draft in (draft for group in groups for draft in group):
            draft.partition = self._partition
        with self._heartbeat.appending(self._place):
            await self._writer.append(groups)
