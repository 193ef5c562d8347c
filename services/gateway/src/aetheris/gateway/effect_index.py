"""Where a tenant's effects lie in the log, by the external system's id and by time: kept in Redis, read on when asked.

Nothing is read for it while nobody asks: who asks first pays for what was appended since the last question. Effects,
and up to where the log is known, change in one script: what Redis loses it loses together, and it is read again.
Each tenant has lists of its own: nothing that others do is seen in them, not even how much that is. They end: who adds
to one takes out what is older than it may be, and one that nobody adds to goes as a whole.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aetheris.gateway.core.cursors import cursor_at, of_tenant, place_at
from aetheris.gateway.core.problems import Unavailable
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.log.interface import Log, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.resp import Command

_LIST = "effects"
_CREATED, _FINISHED = b"io.aetheris.job_created.v1", b"io.aetheris.tool_invocation_finished.v1"
_NAMED = b'"external_id"'
_PORTION = 1_000
_PUT_DEADLINE_S = 10.0
_BIRTHS_KEPT = 50_000
_SWEPT = 100
"""Of a list, at each portion, besides twice what is added: so many that are over are taken out."""
NOBODYS_AFTER_MS = 60_000
"""So old, an effect of a job that nobody knows is nobody's; before that the list of jobs may be behind the log."""

# Only goes on from where it is known: another gateway may be ahead, or Redis has lost it all meanwhile.
_PUT = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if (held or '') ~= ARGV[2] then return 0 end
local least, lasts_ms, most, touched = '(' .. ARGV[4], ARGV[5], ARGV[6], {}
for at = 7, #ARGV, 4 do
  redis.call('ZADD', ARGV[at], 0, ARGV[at + 1])
  redis.call('ZADD', ARGV[at + 2], 0, ARGV[at + 3])
  touched[ARGV[at]] = ARGV[at + 2]
end
for ids, times in pairs(touched) do
  for _, over in ipairs(redis.call('ZRANGE', times, '-', least, 'BYLEX', 'LIMIT', 0, most)) do
    local place, name = string.match(over, '^%d+|(.*)|(%x+)$')
    redis.call('ZREM', times, over)
    redis.call('ZREM', ids, name .. '|' .. place)
  end
  redis.call('PEXPIRE', ids, lasts_ms)
  redis.call('PEXPIRE', times, lasts_ms)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


@dataclass(frozen=True, slots=True)
class EffectPlace:
    """An effect's place: its job, and the offset of the record that says so."""

    job_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Spot:
    """What the index keeps of an effect."""

    found: EffectPlace
    external_id: str
    timestamp_ms: int


class Tenants(Protocol):
    """Who knows whose a job is."""

    async def listed_tenants(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """The tenants of those of the jobs that are listed; raises Unavailable, RedisUnavailable."""
        ...

    async def tenant(self, job_id: str) -> str | None:
        """That of any job; None where there is no such job; raises Unavailable, RedisUnavailable, LogError."""
        ...


class EffectIndex:
    """Effects that have an external id, each for `found_for_s` from its record on."""

    def __init__(
        self, log: Log, redis: Redis, jobs: Tenants, clock: Clock, *, patience_s: float, found_for_s: float
    ) -> None:
        self._log = log
        self._redis = redis
        names = redis.together("aetheris:gateway:", "effects")
        self._known = f"{names}known"
        self._ids, self._times = f"{names}ids:", f"{names}times:"
        """Without the tenant."""
        self._jobs = jobs
        self._clock = clock
        self._patience_s = patience_s
        self._found_for_ms = round(found_for_s * 1000)
        self._born: OrderedDict[str, str] = OrderedDict()
        """The tenants of the jobs whose births were read last."""
        self._catching_up: asyncio.Task[Mapping[int, int]] | None = None

    async def by_external_id(self, tenant: str, external_id: str) -> list[EffectPlace]:
        """Where it is said that the external system calls an effect of the tenant's so.

        Raises:
            Unavailable: the log is still being read.
            RedisUnavailable, LogError.
        """
        name, ids = _name_of(external_id), self._ids + of_tenant(tenant)
        members = await self._ask(("ZRANGE", ids, f"[{name}|", f"[{name}}}", "BYLEX", "LIMIT", 0, _PORTION))
        return [_found(member) for member in members]

    async def newest(
        self, tenant: str, since_ms: int, cursor: str | None, limit: int
    ) -> tuple[list[EffectPlace], str | None]:
        """The tenant's effects from a time on, newest first, behind `cursor`; and the cursor of the next ones.

        Raises:
            BadRequest: no cursor of this tenant's effects.
            Unavailable: the log is still being read.
            RedisUnavailable, LogError.
        """
        below = f"({place_at(cursor, tenant, _LIST)}" if cursor is not None else "+"
        times, least = self._times + of_tenant(tenant), f"[{max(since_ms, self._least_ms()):015d}"
        members = await self._ask(("ZRANGE", times, below, least, "BYLEX", "REV", "LIMIT", 0, limit + 1))
        taken = members[:limit]
        more = len(members) > limit
        return [_found(one) for one in taken], cursor_at(taken[-1].decode(), tenant, _LIST) if more else None

    async def close(self) -> None:
        """Stop reading."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.wait({self._catching_up})

    async def _ask(self, command: Command) -> list[bytes]:
        """What Redis says, once it knows everything that the log had when this was called."""
        ends = await self._up_to_date()
        members, flat = await self._redis.pipeline([command, ("HGETALL", self._known)])
        known = _positions(flat)
        if any(known.get(partition, 0) < end for partition, end in ends.items()):
            raise _indexing()  # lost between the two
        return members

    async def _up_to_date(self) -> Mapping[int, int]:
        if self._catching_up is not None and not self._catching_up.done():
            await self._wait(self._catching_up)  # it may have begun before what is asked for was appended
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        return await self._wait(self._catching_up)

    async def _wait(self, task: "asyncio.Task[Mapping[int, int]]") -> Mapping[int, int]:
        done, _ = await asyncio.wait({task}, timeout=self._patience_s)
        if not done:
            raise _indexing()
        return task.result()

    async def _catch_up(self) -> Mapping[int, int]:
        """Read what is not known yet; up to where everything is known then, by partition."""
        places = [(str(Topic.JOBS_EVENTS), number) for number in range(await self._log.partitions(Topic.JOBS_EVENTS))]
        begins, ends = await self._log.beginning_offsets(places), await self._log.end_offsets(places)
        (flat,) = await self._redis.pipeline([("HGETALL", self._known)])
        known = _positions(flat)
        for place, end in ends.items():
            if known.get(place[1], begins[place]) < end:
                await self._read(place, known.get(place[1]), begins[place], end)
        return {partition: end for (topic, partition), end in ends.items() if end > begins[topic, partition]}

    async def _read(self, place: Place, known: int | None, begin: int, end: int) -> None:
        start = max(begin, known or 0)
        async for records in replay(self._log, place, start, end):
            self._note_births(records)
            spots = [spot for spot in spots_in(records) if spot.timestamp_ms >= self._least_ms()]
            while len(spots) > _PORTION:
                portion, spots = spots[:_PORTION], spots[_PORTION:]
                known = await self._put(place[1], known, portion[-1].found.offset + 1, portion)
            known = await self._put(place[1], known, records[-1].offset + 1, spots)

    def _note_births(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.header("ce_type") == _CREATED and (tenant := _text_in(record.value, "tenant")) is not None:
                self._born.setdefault(_job_of(record), tenant)
        while len(self._born) > _BIRTHS_KEPT:
            self._born.popitem(last=False)

    async def _owned(self, spots: Sequence[Spot]) -> list[tuple[str, Spot]]:
        """Each with its tenant; without what is nobody's."""
        if not spots:
            return []
        listed = await self._jobs.listed_tenants({spot.found.job_id for spot in spots})
        young_ms = self._clock.now().timestamp() * 1000 - NOBODYS_AFTER_MS
        owned: list[tuple[str, Spot]] = []
        for spot in spots:
            job_id = spot.found.job_id
            tenant = listed.get(job_id) or self._born.get(job_id) or await self._jobs.tenant(job_id)
            if tenant is not None:
                self._born.setdefault(job_id, tenant)
                owned.append((tenant, spot))
            elif spot.timestamp_ms > young_ms:
                raise _indexing()
        return owned

    def _least_ms(self) -> int:
        """The time from which on effects are listed."""
        return max(0, round(self._clock.now().timestamp() * 1000) - self._found_for_ms)

    async def _put(self, partition: int, known: int | None, upto: int, spots: Sequence[Spot]) -> int:
        lines = [part for tenant, spot in await self._owned(spots) for part in self._lines(tenant, spot)]
        expected = "" if known is None else str(known)
        bounds = (f"{self._least_ms():015d}", self._found_for_ms, _SWEPT + 2 * len(spots))
        script = ("EVAL", _PUT, 1, self._known, partition, expected, upto, *bounds, *lines)
        (done,) = await self._redis.pipeline([script], _PUT_DEADLINE_S)
        if done != 1:
            raise _indexing()
        return upto

    def _lines(self, tenant: str, spot: Spot) -> tuple[str, str, str, str]:
        """Two keys, each with what is added to it."""
        place, subject = f"{spot.found.job_id}|{spot.found.offset}", of_tenant(tenant)
        name = _name_of(spot.external_id)
        by_id, by_time = f"{name}|{place}", f"{spot.timestamp_ms:015d}|{place}|{name}"
        return self._ids + subject, by_id, self._times + subject, by_time


def spots_in(records: Sequence[Record]) -> Iterator[Spot]:
    """The effects that the external system has an id of; other records are hardly looked at."""
    for record in records:
        if _NAMED in record.value and record.header("ce_type") == _FINISHED:
            external_id = _text_in(record.value, "external_id")
            if external_id is not None:
                yield Spot(EffectPlace(_job_of(record), record.offset), external_id, record.timestamp_ms)


def _job_of(record: Record) -> str:
    return (record.key or b"").decode(errors="replace")


def _text_in(value: bytes, field: str) -> str | None:
    try:
        reported: Any = json.loads(value).get(field)
    except (ValueError, AttributeError, RecursionError):
        return None
    return reported if isinstance(reported, str) else None


def _name_of(external_id: str) -> str:
    return hashlib.sha256(external_id.encode(errors="surrogatepass")).hexdigest()


def _found(member: bytes) -> EffectPlace:
    _, job_id, offset, *_ = member.decode(errors="replace").split("|")
    return EffectPlace(job_id, int(offset))


def _positions(flat: Sequence[bytes]) -> dict[int, int]:
    return {int(partition): int(at) for partition, at in zip(flat[::2], flat[1::2], strict=True)}


def _indexing() -> Unavailable:
    return Unavailable("effects_indexing", "effects are being looked up in the log: ask again")
