"""Who this process is: a name that nobody else lives under, and a fresh incarnation (docs/guarantees.md).

the name is free                                        taken
its incarnation stands in the file of our own lock      taken: the lock proves that it has ended
any other lives                                         refused: a fresh folder proves nothing
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import HUMAN, LOCK, REFUSED, Name, Names, entry_of
from aetheris.protocol.messages.commands import Ended, WorkerEntry
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.base.refusal import AGAIN_STATUS, WorkerIdTaken
from aetheris.runtime.log.interface import Appender, Log
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.lock import Lock
from aetheris.tool_executor.core.partition import Worker
from aetheris.tool_executor.registration import announce

_log = structlog.get_logger(__name__)

CLAIM_WITHIN_S = 60.0
"""A claim is read back within this time, or given up: the topic keeps what was written so long, and longer."""

_LEAVE_WITHIN_S = 2.0
_RECENT = 8
"""So many of those who held the lock last are named in any case: what they appended may not have arrived yet."""

StandDown = Callable[[str], None]
"""Ends this process at once; told how its end is known."""


def exit_at_once(how: str) -> None:
    """No drain: others rely on it that this incarnation acts no more."""
    _log.error("this incarnation was declared ended, and ends at once: what it was at is settled by others", how=how)
    os._exit(AGAIN_STATUS)


@asynccontextmanager
async def living(
    worker_id: str,
    lock: Lock,
    *,
    log: Log,
    appender: Appender,
    clock: Clock,
    stand_down: StandDown = exit_at_once,
) -> AsyncGenerator[Worker]:
    """Live under the name; whoever ends in good order leaves it to others, which is no proof that nothing acts.

    Raises:
        WorkerIdTaken: another incarnation lives under it.
    """
    identity = _Identity(worker_id, Table(log, Topic.WORKERS), appender, clock, stand_down)
    await identity.load()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(identity.watch())
        yield await identity.claim(lock)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await identity.leave()
        watching.cancel()


class _Identity:
    def __init__(self, worker_id: str, table: Table, appender: Appender, clock: Clock, stand_down: StandDown) -> None:
        self._appender = appender
        self._clock = clock
        self._worker_id = worker_id
        self._stand_down = stand_down
        self._incarnation = fresh_id()
        self._names = Names()
        self._read_back = asyncio.Event()
        self._intruder: tuple[str | None] | None = None
        self._contested = asyncio.Event()
        self._table = table
        self._table.on_change(self._observe)

    async def load(self) -> None:
        await self._table.load()

    async def watch(self) -> None:
        """Read on, and say again who lives here where a record that doesn't count would hide it from later readers."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._table.run())
            while True:
                await self._contested.wait()
                self._contested.clear()
                await self._append(self._again())

    async def claim(self, lock: Lock) -> Worker:
        """Take the name, if log order gives it.

        Raises:
            WorkerIdTaken: somebody else has it, or was first.
            TimeoutError: it could not be read back.
        """
        name = self._names[self._worker_id]
        if name.live not in (None, *lock.former):
            raise self._taken_by(name)
        recent = lock.former[-_RECENT:]
        gone = [one for one in lock.former if (name.may_act(one) or one in recent) and one not in name.ended]
        lock.hold(self._incarnation)
        now, proofs = self._clock.now().isoformat(), (Ended(incarnation=one, how=LOCK) for one in gone)
        async with asyncio.timeout(CLAIM_WITHIN_S):
            await self._append(name.entry(self._worker_id, self._incarnation, now, *proofs))
            await self._read_back.wait()
        name = self._names[self._worker_id]
        if name.live != self._incarnation:
            raise self._taken_by(name)
        return Worker(self._worker_id, self._incarnation)

    async def leave(self) -> None:
        """The name is free; only the next holder of the lock knows that this incarnation has ended."""
        entry = self._names[self._worker_id].entry(self._worker_id, None, None)
        await self._append(entry.model_copy(update={"left": (*entry.left, self._incarnation)}))

    def _taken_by(self, name: Name) -> WorkerIdTaken:
        return WorkerIdTaken(
            f"{name.live} lives as {self._worker_id} since {name.since}, and this folder can't tell that it has ended:"
            f" give this process another AETHERIS_WORKER_ID, or where that one is gone for good:"
            f" aetheris workers end {self._worker_id} --evidence TEXT"
        )

    def _observe(self, key: str, value: bytes | None) -> None:
        taken = self._names.take(key, value)
        if key != self._worker_id:
            return
        name, entry = self._names[key], entry_of(key, value)
        end = name.ended.get(self._incarnation)
        if entry is not None and entry.live == self._incarnation:
            self._read_back.set()
        if end is not None:
            self._stand_down(f"{end.how}, by {end.by}" if end.how == HUMAN else end.how)
        elif not taken.counts and name.live == self._incarnation:
            self._intruder = (entry.live if entry is not None else None,)
            self._contested.set()

    def _again(self) -> WorkerEntry:
        name, live = self._names[self._worker_id], self._intruder[0] if self._intruder is not None else None
        refused = () if live in (None, self._incarnation) else (Ended(incarnation=live, how=REFUSED),)
        return name.entry(self._worker_id, self._incarnation, name.since, *refused)

    async def _append(self, entry: WorkerEntry) -> None:
        await announce(self._appender, self._clock, entry)
