"""Jobs told from their logs: replayed, their effects, their trace. Nothing is stored: the same log, the same answer."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aetheris.gateway.core import wire
from aetheris.gateway.core.cursors import cursor_at, number_at
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, NotBegun, NotFoundProblem, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.effect_index import EffectIndex, EffectPlace
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.kept_histories import KeptHistories
from aetheris.gateway.reads import Reads
from aetheris.protocol.base.conditions import BadCondition
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent, logged_events
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, Blobs, BlobsUnreachable
from aetheris.views.call_ledger import ledger_of
from aetheris.views.job_history import JobHistory, about, job_history
from aetheris.views.provenance import EffectFilter, origin
from aetheris.views.replayed_job import UnknownPoint, replay
from aetheris.views.trace import trace_of, trace_page

LOOKED_AT = 100
"""Effects that one question looks at; the cursor leads on."""
MODEL_SAID = "text"
"""The name of a model's answer in a stream of events."""
CLOCKS_APART_MS = 60_000
_SENT = re.compile(r"aetheris:(?P<job>[A-Za-z0-9_.-]{1,64}):[A-Za-z0-9_.-]{1,64}:\d+")
"""An external key: it names its job."""


@dataclass(frozen=True, slots=True)
class EffectQuery:
    """A question for effects, as it came."""

    job_id: str | None
    external_id: str | None
    tool: str | None
    since: str | None
    where: Sequence[str]
    cursor: str | None

    def wanted(self) -> EffectFilter:
        """What is looked for; raises BadRequest."""
        try:
            return EffectFilter.of(self.external_id, self.tool, self.since, self.where)
        except BadCondition as error:
            raise BadRequestProblem(error.code, error.field, error.rule) from None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """At most `limit` of a job's steps, or effects, behind the first `after` ones."""

    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events of a job are meant: of any of the types (`text`: what a model said), and about the node."""

    types: frozenset[str]
    node_id: str | None

    def takes(self, logged: LoggedEvent) -> bool:
        """Whether it is one of them; what is void never is."""
        if (
            logged.sequence is None
            or logged.is_void
            or (self.node_id is not None and about(logged.event) != self.node_id)
        ):
            return False
        return not self.types or logged.type in self.types or wire.sse_name(logged) in self.types & {MODEL_SAID}


class JobHistories:
    """Reads a job's records and makes its history of them, in a thread: a long job holds nobody up."""

    def __init__(self, reads: Reads, reader: JobReader, index: EffectIndex, blobs: Blobs, deadlines: Deadlines) -> None:
        self._reads = reads
        self._reader = reader
        self._deadlines = deadlines
        self._index = index
        self._blobs = StoredResults(blobs)
        self._histories = KeptHistories(reader, self._blobs, deadlines)

    async def replay(self, caller: Principal, job_id: str, to: str | None, *, steps: bool) -> dict[str, Any]:
        """The job as it stood at a point, and what a replay derives otherwise than was recorded.

        Raises:
            BadRequest: no such point. NotFound, Unavailable.
        """
        records = await self._created_records(caller, job_id)

        def replayed() -> dict[str, Any]:
            found, taken = replay(as_sealed(records), to, self._blobs)
            return {**found.report(), **({"steps": [step.to_json() for step in taken]} if steps else {})}

        try:
            return await asyncio.to_thread(replayed)
        except UnknownPoint as error:
            raise BadRequestProblem(error.code, "to", str(error)) from None

    async def effects(self, caller: Principal, job_id: str, page: HistoryPage | None = None) -> dict[str, Any]:
        """The effect log, or a page of it, which also says how many there are (`effect_count`).

        Raises:
            NotFound, Unavailable.
        """
        history = await self._history(caller, job_id)

        def told() -> dict[str, Any]:
            whole = history.effects.to_json(job_id)
            if page is None:
                return whole
            rows = whole["effects"]
            return {**whole, "effects": rows[page.after : page.after + page.limit], "effect_count": len(rows)}

        return await asyncio.to_thread(told)

    async def events(
        self, caller: Principal, job_id: str, wanted: EventFilter, page: HistoryPage
    ) -> list[dict[str, Any]]:
        """Those of a job's events that are wanted, with sequence above `page.after`.

        Raises:
            NotFound, Unavailable.
        """
        history = await self._history(caller, job_id)

        def told() -> list[dict[str, Any]]:
            meant = (one.logged for one in history.moments if wanted.takes(one.logged))
            behind = ((one.sequence, one) for one in meant if one.sequence is not None and one.sequence > page.after)
            return [wire.event_view(sequence, one) for sequence, one in islice(behind, page.limit)]

        return await asyncio.to_thread(told)

    async def ledger(self, caller: Principal, job_id: str) -> dict[str, Any]:
        """Each call as the ledger holds it, and what made it so.

        Raises:
            NotFound, Unavailable.
        """
        records = await self._created_records(caller, job_id)
        return await asyncio.to_thread(lambda: ledger_of(logged_events(as_sealed(records))))

    async def trace(self, caller: Principal, job_id: str, page: HistoryPage | None = None) -> dict[str, Any]:
        """Decision tree, dependency graph, steps, events; of a page its steps alone, without events.

        Raises:
            NotFound, Unavailable.
        """
        history = await self._history(caller, job_id)

        def told() -> dict[str, Any]:
            return trace_of(history) if page is None else trace_page(history, page.after, page.limit)

        return await asyncio.to_thread(told)

    async def why(self, caller: Principal, asked: EffectQuery) -> dict[str, Any]:
        """Effects of the tenant, newest first, each with the tree of its reasons: {effects, cursor}.

        Raises:
            BadRequest, NotFound, Unavailable.
        """
        wanted = asked.wanted()
        if asked.job_id is not None:
            return await self._of_job(caller, asked.job_id, asked.cursor, wanted)
        async with self._deadlines.deadline():
            found, cursor = await self._places(caller, asked, wanted)
        jobs: dict[str, list[int]] = {}
        for one in found:
            jobs.setdefault(one.job_id, []).append(one.offset)
        trees = [await self._origins(caller, job_id, offsets, wanted) for job_id, offsets in jobs.items()]
        reported = sorted((tree for job in trees for tree in job), key=_written, reverse=True)
        return {"effects": reported, "cursor": cursor}

    async def _of_job(self, caller: Principal, job_id: str, cursor: str | None, wanted: EffectFilter) -> dict[str, Any]:
        """As `why`, of one job, from its log alone."""
        listed = f"effects of {job_id}"
        below = number_at(cursor, caller.tenant, listed) if cursor is not None else None
        history = await self._history(caller, job_id)

        def traced_back() -> tuple[list[dict[str, Any]], str | None]:
            rows = [row for row in reversed(wanted.among(history)) if below is None or row["offset"] < below]
            trees = [origin(history, row) for row in rows[:LOOKED_AT]]
            last = str(rows[LOOKED_AT - 1]["offset"]) if len(rows) > LOOKED_AT else None
            return trees, None if last is None else cursor_at(last, caller.tenant, listed)

        trees, following = await asyncio.to_thread(traced_back)
        return {"effects": trees, "cursor": following}

    async def _places(
        self, caller: Principal, asked: EffectQuery, wanted: EffectFilter
    ) -> tuple[list[EffectPlace], str | None]:
        if wanted.external_id is None:
            since_ms = 0 if wanted.since is None else int(wanted.since.timestamp() * 1000) - CLOCKS_APART_MS
            return await self._index.newest(caller.tenant, max(0, since_ms), asked.cursor, LOOKED_AT)
        sent = _SENT.fullmatch(wanted.external_id)
        if sent is not None:
            return [EffectPlace(sent["job"], -1)], None
        return await self._index.by_external_id(caller.tenant, wanted.external_id), None

    async def _origins(
        self, caller: Principal, job_id: str, offsets: list[int], wanted: EffectFilter
    ) -> list[dict[str, Any]]:
        """The reasons of a job's effects at these offsets; of all that are wanted, where an id was asked for."""
        until = None if wanted.external_id is not None else max(offsets) + 2  # the commit lies beside its finished
        try:
            records = await self._reads.records(caller, job_id, until)
        except NotFoundProblem:
            return []

        def traced_back() -> list[dict[str, Any]]:
            history = job_history(as_sealed(records), self._blobs)
            rows = wanted.among(history)
            return [origin(history, row) for row in rows if until is None or row["offset"] in offsets]

        return await asyncio.to_thread(traced_back)

    async def _history(self, caller: Principal, job_id: str) -> JobHistory:
        """Of all that its log has now; raises NotFound, Unavailable."""
        found = await self._histories.of(await self._reader.check(caller, job_id))
        if found is None:
            raise NotBegun
        return found

    async def _created_records(self, caller: Principal, job_id: str) -> list[Record]:
        records = await self._reads.records(caller, job_id)
        if not records:
            raise NotBegun
        return records


def _written(tree: Mapping[str, Any]) -> str:
    return str(tree["facts"]["created_at"])


class StoredResults(Mapping[str, Any]):
    """The blob store, as what calls are derived from: sha256 → a result, read when it is needed."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def __getitem__(self, sha256: str) -> Any:
        try:
            return json.loads(self._blobs.read(sha256))
        except (BlobMissing, BlobCorrupt):
            raise KeyError(sha256) from None
        except BlobsUnreachable as error:
            raise Unavailable(error.code, str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
