"""The names of workers: who lives under them, and the word of a person that one who left no proof is gone."""

from typing import Any

from aetheris.gateway.awaited import Awaited
from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import bodies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, NotFoundProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.message_signer import signed
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.reads import Reads
from aetheris.gateway.views import timestamp
from aetheris.protocol.api import WorkerEndBody
from aetheris.protocol.api_operations import IncarnationEnd, WorkerEndReply
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import Name, Names
from aetheris.protocol.messages.commands import WorkerEnd
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.planning.gate import HumanAction
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.interface import Appender
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.table import Table


class WorkerDirectory:
    """Reads the topic `workers`, and writes a person's word into it."""

    def __init__(
        self,
        table: Table,
        *,
        operators: OperatorGate,
        reads: Reads,
        appender: Appender,
        deadlines: Deadlines,
        clock: Clock,
        answer_s: float,
        keys: RecordKeys = UNSIGNED,
    ) -> None:
        """Before the table is loaded: which record counts is said by those before it."""
        self._table = table
        self._keys = keys
        self._names = Names(keys.messages.counts)
        self._operators = operators
        self._reads = reads
        self._appender = appender
        self._deadlines = deadlines
        self._clock = clock
        self._answer_s = answer_s
        self._awaited = Awaited()
        table.on_change(self._take)

    def all(self) -> list[dict[str, Any]]:
        """Every name."""
        return [_shown(worker_id, name) for worker_id, name in self._names]

    def names(self) -> list[tuple[str, Name]]:
        """Every name, with what is known of it."""
        return list(self._names)

    async def one(self, caller: Principal, worker_id: str) -> dict[str, Any]:
        """A name, with what it has open in the caller's jobs.

        Raises:
            NotFound, Unavailable.
        """
        name = self._known(worker_id)
        opened = await self._reads.opened_by(caller, worker_id)
        ends = [one.model_dump(exclude_none=True) for one in name.ended.values()]
        return {**_shown(worker_id, name), "ended": ends, "open": opened}

    async def end(self, caller: Principal, worker_id: str, raw: bytes) -> Reply[WorkerEndReply]:
        """Take a person's word that an incarnation can act no more; answered where the topic says so.

        Raises:
            BadRequest, NotFound, Forbidden (the policy names others), Conflict, Unavailable.
        """
        wanted = bodies.read(WorkerEndBody, raw)
        await self._operators.check(caller, HumanAction.END_WORKER)
        name = self._known(worker_id)
        incarnation = wanted.incarnation or _meant(worker_id, name)
        if incarnation not in name.ended and not name.may_act(incarnation):
            message = "no such incarnation lives under this name, or has left it"
            raise ConflictProblem("not_live", message, worker_id=worker_id, incarnation=incarnation)
        if incarnation not in name.ended:
            await self._write(
                WorkerEnd(
                    worker_id=worker_id,
                    incarnation=incarnation,
                    by=caller.id,
                    principal=caller.recorded,
                    evidence=wanted.evidence,
                )
            )
        await self._awaited.until(lambda: incarnation in self._names[worker_id].ended, self._answer_s)
        event = self._names[worker_id].ended.get(incarnation)  # a successor that had the lock may have said it first
        ended = None if event is None else IncarnationEnd(**event.model_dump(exclude_none=True))
        return Reply(event is not None, WorkerEndReply(worker_id=worker_id, incarnation=incarnation, ended=ended))

    async def _write(self, end: WorkerEnd) -> None:
        """Into the partition of the worker's own line: what its name's fold reads lies in one order."""
        at, time = partition_of(end.worker_id, self._table.partitions), timestamp(self._clock.now())
        record = draft(Topic.WORKERS, end, key=end.key, id=fresh_id(), source=SOURCE, time=time, partition=at)
        async with self._deadlines.deadline():
            await self._appender.append([(signed(record, self._keys),)])

    def _take(self, key: str, value: bytes | None) -> None:
        self._names.take(key, value)
        self._awaited.changed()

    def _known(self, worker_id: str) -> Name:
        if worker_id not in self._names:
            raise NotFoundProblem("unknown_worker", "no worker was ever called so")
        return self._names[worker_id]


def _meant(worker_id: str, name: Name) -> str:
    """Who is meant where no incarnation is named: the one who lives, else the only one who has left."""
    if name.live is not None:
        return name.live
    if len(name.left) != 1:
        raise ConflictProblem("not_live", "nobody lives under this name; name the incarnation", worker_id=worker_id)
    return next(iter(name.left))


def _shown(worker_id: str, name: Name) -> dict[str, Any]:
    return {
        "worker_id": worker_id,
        "live": name.live,
        "since": name.since if name.live is not None else None,
        "left": list(name.left),
        "ended": len(name.ended),
    }
