"""The list of jobs in Redis: a hash per job, and per tenant (and status) a sorted set by creation time.

It holds the jobs that are not sealed, and those that were sealed lately: rows that end are swept out of everything.

Never an authority: rebuilt from jobs.index whenever Redis may have lost any of it, and not served until then. The
epoch key names the run of the Redis server in which the views were completed: a flush takes it away, a restart
(which may lose the last second of writes) makes it name another run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from aetheris.gateway.core.cursors import cursor_at, of_tenant, place_at
from aetheris.gateway.core.problems import Unavailable
from aetheris.protocol.messages.commands import ListedFreeze, ListedPause, OpenRequest
from aetheris.protocol.planning.approvals import job_of
from aetheris.runtime.redis.client import Redis
from aetheris.runtime.redis.resp import Command

_JOBS, _REQUESTS = "jobs", "asked"
"""The lists of a tenant, as keys and cursors name them."""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
STATUSES = ("submitted", "running", "waiting", "paused", "frozen", "needs_upgrade", "completed", "failed", "cancelled")
"""What a row may say of its job; finer words are the job's own view's."""

_LISTED_OPEN = STATUSES[:5]
"""Those of a job that has not ended."""

REQUEST_TTL_MS = 24 * 3600 * 1000
"""How long the fast guard of an Idempotency-Key lives; after it jobs.index alone guards."""
_BUILDING_TTL_MS = 3600 * 1000
_PORTION = 500
_EPOCH_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing is older; years of fewer digits would not sort as text."""
_OPEN = TypeAdapter(tuple[OpenRequest, ...])
_BULK_DEADLINE_S = 10.0

# A later record of jobs.index replaces an earlier one; what the gateway says ahead of it (offset −1) replaces nothing.
_PUT = """
local offset, place, tenant, status = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local list, open, asked, ends = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local held = redis.call('HMGET', KEYS[1], 'offset', 'place', 'status', 'requests')
if held[1] and (offset < 0 or tonumber(held[1]) > offset) then return 0 end
if held[2] then
  redis.call('ZREM', list .. '*', held[2])
  redis.call('ZREM', list .. held[3], held[2])
end
if held[4] then
  for _, request in ipairs(cjson.decode(held[4])) do
    redis.call('ZREM', open, request.created_at .. '|' .. request.id)
  end
  redis.call('HDEL', KEYS[1], 'requests')
end
redis.call('HDEL', KEYS[1], 'paused', 'frozen')
if asked ~= '' then
  for _, request in ipairs(cjson.decode(asked)) do
    redis.call('ZADD', open, 0, request.created_at .. '|' .. request.id)
  end
  redis.call('HSET', KEYS[1], 'requests', asked)
end
redis.call('HSET', KEYS[1], 'offset', offset, 'place', place, 'tenant', tenant, 'status', status, unpack(ARGV, 10))
redis.call('ZADD', list .. '*', 0, place)
redis.call('ZADD', list .. status, 0, place)
if ends ~= '' then redis.call('ZADD', KEYS[2], ends, ARGV[9]) end
return 1
"""
_DROP = """
local function drop(key, job)
  local held = redis.call('HMGET', key, 'tenant', 'place', 'status', 'requests')
  redis.call('ZREM', KEYS[1], job)
  if not held[1] then return end
  local tenant = #held[1] .. ':' .. held[1]
  redis.call('ZREM', ARGV[2] .. tenant .. ':*', held[2])
  redis.call('ZREM', ARGV[2] .. tenant .. ':' .. held[3], held[2])
  for _, request in ipairs(held[4] and cjson.decode(held[4]) or {}) do
    redis.call('ZREM', ARGV[3] .. tenant, request.created_at .. '|' .. request.id)
  end
  redis.call('DEL', key)
end
"""
_DROP_THESE = (
    _DROP
    + """
for at = 4, #ARGV do drop(ARGV[1] .. ARGV[at], ARGV[at]) end
return 1
"""
)
_SWEEP = (
    _DROP
    + """
local over = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[4], 'BYSCORE', 'LIMIT', 0, ARGV[5])
for _, job in ipairs(over) do drop(ARGV[1] .. job, job) end
return #over
"""
)
_COMPLETE = """
if redis.call('DEL', KEYS[2]) == 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the list; `offset` is that of its jobs.index record, −1 if the gateway itself wrote the row."""

    job_id: str
    tenant: str
    status: str
    request_hash: str
    submitted_by: str
    created_at: str
    birth: int | None = None
    since: int | None = None
    """Offset below which no record of the job lies: known where this gateway took the submission."""
    offset: int = -1
    requests: tuple[OpenRequest, ...] = ()
    trace: bool | None = None
    """Whether its submission wants it traced."""
    paused: ListedPause | None = None
    frozen: ListedFreeze | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ends_ms: int | None = None
    """When the row ends; None as long as the job isn't sealed."""

    @property
    def first_offset(self) -> int | None:
        """Where the job's records begin, or before."""
        return self.birth if self.birth is not None else self.since

    def summary(self) -> dict[str, Any]:
        """What GET /jobs shows of it."""
        found: dict[str, Any] = {
            "job_id": self.job_id,
            "status": self.status,
            "created_at": self.created_at,
            "submitted_by": self.submitted_by,
            "tenant": self.tenant,
        }
        if self.labels:
            found["labels"] = dict(self.labels)
        if self.paused is not None:
            found["paused"] = self.paused.model_dump()
        if self.frozen is not None:
            found["frozen"] = self.frozen.model_dump(exclude_none=True)
        return found


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which of a tenant's jobs are wanted: of a status, of who submitted them, with a label, created from a time on."""

    status: str | None = None
    agent: str | None = None
    since: datetime | None = None
    label: tuple[str, str] | None = None
    """(name, value)."""

    @property
    def subject(self) -> str:
        """The list that a cursor leads on in: it means nothing to another question."""
        since = timestamp(self.since) if self.since is not None else None
        return json.dumps([_JOBS, self.status, self.agent, since, self.label])

    def takes(self, row: Row) -> bool:
        """Whether a row of the list is wanted."""
        is_labelled = self.label is None or row.labels.get(self.label[0]) == self.label[1]
        return is_labelled and self.agent in (None, row.submitted_by)


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, newest first, and where the next ones begin; few or none where few of those looked at are wanted."""

    rows: tuple[Row, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class OpenRequestPage:
    """Some open requests with their jobs, oldest first, and where the next ones begin."""

    requests: tuple[tuple[Row, OpenRequest], ...]
    cursor: str | None


class ViewsLost(Unavailable):
    """Redis lost the views: they are being rebuilt from jobs.index."""

    def __init__(self) -> None:
        super().__init__("views_rebuilding", "the list of jobs is being rebuilt from the log: try again")


class _Keys:
    """What Redis knows the views by."""

    def __init__(self, named: str) -> None:
        self.epoch, self.building = f"{named}epoch", f"{named}building:"
        self.job, self.request, self.turn = f"{named}job:", f"{named}request:", f"{named}turn:"
        self.ending = f"{named}ending"
        """Jobs whose row ends, by when that is."""
        self._lists, self._asked = f"{named}{_JOBS}:", f"{named}{_REQUESTS}:"
        self.of_drop = (self.job, self._lists, self._asked)
        """What the script that drops rows is told of keys."""

    def list_of(self, tenant: str) -> str:
        """The key of a tenant's jobs, without the status that they have: "*" for all."""
        return f"{self._lists}{of_tenant(tenant)}:"

    def asked_of(self, tenant: str) -> str:
        """The key of a tenant's open requests."""
        return self._asked + of_tenant(tenant)


class Views:
    """Reads fail with ViewsLost rather than say that a job doesn't exist."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._keys = _Keys(redis.together("aetheris:gateway:", "lists"))

    async def job(self, job_id: str) -> Row | None:
        """One job's row.

        Raises:
            ViewsLost: it can't be said now.
            RedisUnavailable: not within the deadline.
        """
        (flat,) = await self._read([("HGETALL", self._keys.job + job_id)])
        return _row(job_id, flat) if flat else None

    async def rows(self, job_ids: Sequence[str]) -> list[Row]:
        """Those of the jobs that have a row.

        Raises:
            ViewsLost, RedisUnavailable.
        """
        held = await self._read([("HGETALL", self._keys.job + job_id) for job_id in job_ids])
        return [_row(job_id, flat) for job_id, flat in zip(job_ids, held, strict=True) if flat]

    async def tenants(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """The tenants of those of the jobs that have a row.

        Raises:
            ViewsLost, RedisUnavailable.
        """
        wanted = list(job_ids)
        held = await self._read([("HGET", self._keys.job + job_id, "tenant") for job_id in wanted])
        return {job_id: tenant.decode() for job_id, tenant in zip(wanted, held, strict=True) if tenant is not None}

    async def page(self, tenant: str, query: JobQuery, cursor: str | None, limit: int) -> Page:
        """A tenant's jobs, newest first, behind `cursor`: those that are wanted of `limit`.

        Raises:
            BadRequest: no cursor of this tenant's jobs. ViewsLost, RedisUnavailable.
        """
        below = f"({place_at(cursor, tenant, query.subject)}" if cursor is not None else "+"
        least = f"[{timestamp(query.since)}" if query.since is not None and query.since >= _EPOCH_BEGAN else "-"
        name = self._keys.list_of(tenant) + (query.status or "*")
        (places,) = await self._read([("ZRANGE", name, below, least, "BYLEX", "REV", "LIMIT", 0, limit + 1)])
        taken = [place.decode() for place in places[:limit]]
        job_ids = [place.rpartition("|")[2] for place in taken]
        held = await self._read([("HGETALL", self._keys.job + job_id) for job_id in job_ids])
        rows = (_row(job_id, flat) for job_id, flat in zip(job_ids, held, strict=True) if flat)
        found = tuple(row for row in rows if query.takes(row))
        return Page(found, cursor_at(taken[-1], tenant, query.subject) if len(places) > limit else None)

    def cursor_behind(self, row: Row, query: JobQuery) -> str:
        """The cursor of what comes behind a row of a page."""
        return cursor_at(_place(row), row.tenant, query.subject)

    async def open_jobs(self, tenant: str) -> dict[str, int]:
        """How many of a tenant's jobs have not ended, by status.

        Raises:
            ViewsLost, RedisUnavailable.
        """
        counts = await self._read([("ZCARD", self._keys.list_of(tenant) + status) for status in _LISTED_OPEN])
        return dict(zip(_LISTED_OPEN, counts, strict=True))

    async def asked(self, tenant: str, cursor: str | None, limit: int) -> OpenRequestPage:
        """A tenant's open requests to humans, oldest first, behind `cursor`.

        Raises:
            BadRequest: no cursor of this tenant's requests. ViewsLost, RedisUnavailable.
        """
        after = f"({place_at(cursor, tenant, _REQUESTS)}" if cursor is not None else "-"
        (places,) = await self._read(
            [("ZRANGE", self._keys.asked_of(tenant), after, "+", "BYLEX", "LIMIT", 0, limit + 1)]
        )
        taken = [place.decode() for place in places[:limit]]
        wanted = [place.partition("|")[2] for place in taken]
        job_ids = list(dict.fromkeys(job_of(request) or "" for request in wanted))
        held = await self._read([("HGETALL", self._keys.job + job_id) for job_id in job_ids])
        rows = [_row(job_id, flat) for job_id, flat in zip(job_ids, held, strict=True) if flat]
        known = {request.id: (row, request) for row in rows for request in row.requests}
        found = tuple(known[request] for request in wanted if request in known)
        return OpenRequestPage(found, cursor_at(taken[-1], tenant, _REQUESTS) if len(places) > limit else None)

    async def claim(self, job_id: str, request_hash: str) -> str | None:
        """Remember what was asked for under a job_id; the request_hash that stood already, None where none did.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        (held,) = await self._redis.pipeline(
            [("SET", self._keys.request + job_id, request_hash, "NX", "GET", "PX", REQUEST_TTL_MS)]
        )
        return held.decode() if held is not None else None

    async def release(self, job_id: str, request_hash: str) -> None:
        """Forget a claim that nothing came of.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        await self._redis.pipeline([("EVAL", _RELEASE, 1, self._keys.request + job_id, request_hash)])

    async def take_turn(self, job_id: str, lasts_ms: int) -> bool:
        """Whether nobody has taken this job's turn in the time before; it is the caller's then, for as long.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        (taken,) = await self._redis.pipeline([("SET", self._keys.turn + job_id, "1", "NX", "PX", lasts_ms)])
        return taken is not None

    async def put(self, rows: Sequence[Row]) -> None:
        """Write rows; an older one never replaces a newer one.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        for start in range(0, len(rows), _PORTION):
            portion = rows[start : start + _PORTION]
            await self._redis.pipeline([_put(row, self._keys) for row in portion], _BULK_DEADLINE_S)

    async def drop(self, job_ids: Sequence[str]) -> None:
        """Take rows out, where there are any.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        for start in range(0, len(job_ids), _PORTION):
            portion = job_ids[start : start + _PORTION]
            there = await self._redis.pipeline(
                [("EXISTS", self._keys.job + job_id) for job_id in portion], _BULK_DEADLINE_S
            )
            listed = [job_id for job_id, count in zip(portion, there, strict=True) if count]
            if listed:
                await self._redis.pipeline(
                    [("EVAL", _DROP_THESE, 1, self._keys.ending, *self._keys.of_drop, *listed)], _BULK_DEADLINE_S
                )

    async def sweep(self, now_ms: int) -> None:
        """Take out the rows whose time is over.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        swept = _PORTION
        while swept == _PORTION:
            script = ("EVAL", _SWEEP, 1, self._keys.ending, *self._keys.of_drop, now_ms, _PORTION)
            (swept,) = await self._redis.pipeline([script], _BULK_DEADLINE_S)

    async def lost(self) -> bool:
        """Whether Redis may have lost any of the views.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        return _lost(await self._redis.pipeline([("GET", self._keys.epoch), ("INFO", "server")]))

    async def begin(self, build: str) -> str:
        """Start a rebuild; the run of the server that it is valid in.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        _, info = await self._redis.pipeline(
            [("SET", self._keys.building + build, "1", "PX", _BUILDING_TTL_MS), ("INFO", "server")]
        )
        return _run_id(info)

    async def go_on(self, build: str) -> None:
        """A rebuild that takes long is still under way.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        await self._redis.pipeline([("PEXPIRE", self._keys.building + build, _BUILDING_TTL_MS)])

    async def complete(self, build: str, run_id: str) -> bool:
        """Serve the views from now on; False if Redis lost data while they were built.

        Raises:
            RedisUnavailable: not within the deadline.
        """
        done, info = await self._redis.pipeline(
            [("EVAL", _COMPLETE, 2, self._keys.epoch, self._keys.building + build, run_id), ("INFO", "server")]
        )
        return done == 1 and _run_id(info) == run_id

    async def _read(self, commands: Sequence[Command]) -> list[Any]:
        epoch, info, *replies = await self._redis.pipeline([("GET", self._keys.epoch), ("INFO", "server"), *commands])
        if _lost([epoch, info]):
            raise ViewsLost
        return replies


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds: sorts as text."""
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def _put(row: Row, keys: _Keys) -> Command:
    known: Mapping[str, str | int | None] = {
        "request_hash": row.request_hash,
        "submitted_by": row.submitted_by,
        "created_at": row.created_at,
        "birth": row.birth,
        "since": row.since,
        "trace": None if row.trace is None else ("yes" if row.trace else "no"),
        "paused": row.paused.model_dump_json() if row.paused is not None else None,
        "frozen": row.frozen.model_dump_json() if row.frozen is not None else None,
        "labels": json.dumps(dict(row.labels)) if row.labels else None,
        "ends": row.ends_ms,
    }
    fields = [part for name, value in known.items() if value is not None for part in (name, value)]
    asked = _OPEN.dump_json(row.requests).decode() if row.requests else ""
    place = _place(row)
    key = keys.job + row.job_id
    lists = keys.list_of(row.tenant), keys.asked_of(row.tenant)
    ends = "" if row.ends_ms is None else row.ends_ms
    said = (row.offset, place, row.tenant, row.status, *lists, asked, ends, row.job_id)
    return ("EVAL", _PUT, 2, key, keys.ending, *said, *fields)


def _place(row: Row) -> str:
    """Sorts by creation time; the cursor of a page."""
    try:
        created = timestamp(datetime.fromisoformat(row.created_at))
    except ValueError:
        created = row.created_at
    return f"{created}|{row.job_id}"


def _row(job_id: str, flat: Sequence[bytes]) -> Row:
    held = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return Row(
        job_id=job_id,
        tenant=held["tenant"],
        status=held["status"],
        request_hash=held["request_hash"],
        submitted_by=held["submitted_by"],
        created_at=held["created_at"],
        birth=int(held["birth"]) if "birth" in held else None,
        since=int(held["since"]) if "since" in held else None,
        offset=int(held["offset"]),
        requests=_OPEN.validate_json(held["requests"]) if "requests" in held else (),
        trace=held["trace"] == "yes" if "trace" in held else None,
        paused=ListedPause.model_validate_json(held["paused"]) if "paused" in held else None,
        frozen=ListedFreeze.model_validate_json(held["frozen"]) if "frozen" in held else None,
        labels=json.loads(held["labels"]) if "labels" in held else {},
        ends_ms=int(held["ends"]) if "ends" in held else None,
    )


def _lost(replies: Sequence[Any]) -> bool:
    epoch, info = replies
    return epoch is None or epoch.decode() != _run_id(info)


def _run_id(info: Any) -> str:
    text = info.decode() if isinstance(info, bytes) else str(info)
    return next((line[7:].strip() for line in text.splitlines() if line.startswith("run_id:")), "")
