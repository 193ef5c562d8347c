"""Who this process is: a name that nobody else lives under, and a fresh incarnation (docs/guarantees.md).

the name is free                                        taken
its incarnation stands in the file of our own lock      taken: the lock proves that it has ended, its secret says so
any other lives                                         refused: a fresh folder proves nothing
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import LifeWord, LifeWords
from aetheris.protocol.fold.workers import HUMAN, Name, Names, entry_of, name_of
from aetheris.protocol.messages.commands import WorkerEntry
from aetheris.protocol.tables.signed_messages import IsTheirs
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.fresh_ids import fresh_secret
from aetheris.runtime.base.refusal import AGAIN_STATUS, WorkerIdTaken
from aetheris.runtime.log.interface import Appender, Log
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.lock import Lock
from aetheris.tool_executor.core.tries import Worker
from aetheris.tool_executor.life_secrets import LifeSecrets
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
    secrets: LifeSecrets,
    *,
    log: Log,
    appender: Appender,
    clock: Clock,
    is_theirs: IsTheirs,
    stand_down: StandDown = exit_at_once,
) -> AsyncGenerator[Worker]:
    """Live under the name; whoever ends in good order leaves it to others, which is no proof that nothing acts.

    `is_theirs` says which people's words count.

    Raises:
        WorkerIdTaken: another incarnation lives under it.
    """
    identity = _Identity(
        worker_id,
        Table(log, Topic.WORKERS),
        names=Names(is_theirs),
        appender=appender,
        clock=clock,
        stand_down=stand_down,
    )
    await identity.load()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(identity.watch())
        yield await identity.claim(lock, secrets)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await identity.leave()
        watching.cancel()


class _Identity:
    def __init__(
        self,
        worker_id: str,
        table: Table,
        *,
        names: Names,
        appender: Appender,
        clock: Clock,
        stand_down: StandDown,
    ) -> None:
        self._appender = appender
        self._clock = clock
        self._worker_id = worker_id
        self._stand_down = stand_down
        self._secret = fresh_secret()
        self._words = LifeWords.of(self._secret)
        self._incarnation = self._words.incarnation
        self._names = names
        self._read_back = asyncio.Event()
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
                name = self._names[self._worker_id]
                await self._append(name.entry(self._worker_id, name.live, name.since))

    async def claim(self, lock: Lock, secrets: LifeSecrets) -> Worker:
        """Take the name, if log order gives it.

        Raises:
            WorkerIdTaken: somebody else has it, or was first.
            TimeoutError: it could not be read back.
        """
        name = self._names[self._worker_id]
        former = secrets.of(lock.former)
        if name.live not in (None, *former):
            raise self._taken_by(name)
        recent = (*former,)[-_RECENT:]
        gone = [one for one in former if (name.may_act(one) or one in recent) and one not in name.ended]
        secrets.keep(self._secret)
        lock.hold(self._incarnation)
        now, words = self._clock.now().isoformat(), [former[one].word(LifeWord.ENDED) for one in gone]
        async with asyncio.timeout(CLAIM_WITHIN_S):
            await self._append(name.entry(self._worker_id, self._incarnation, now, ended=words))
            await self._read_back.wait()
        name = self._names[self._worker_id]
        if name.live != self._incarnation:
            await self._give_up()  # or its line would hide who lives here from later readers
            raise self._taken_by(name)
        return Worker(self._worker_id, self._incarnation)

    async def leave(self) -> None:
        """The name is free; only the next holder of the lock knows that this incarnation has ended."""
        left = (self._words.word(LifeWord.LEFT),)
        await self._append(self._names[self._worker_id].entry(self._worker_id, None, None, left=left))

    async def _give_up(self) -> None:
        """The name is another's: what this one has said is taken back."""
        name, left = self._names[self._worker_id], (self._words.word(LifeWord.LEFT),)
        await self._append(name.entry(self._worker_id, name.live, name.since, left=left))

    def _taken_by(self, name: Name) -> WorkerIdTaken:
        return WorkerIdTaken(
            f"{name.live} lives as {self._worker_id} since {name.since}, and this folder can't tell that it has ended:"
            f" give this process another AETHERIS_WORKER_ID, or where that one is gone for good:"
            f" aetheris workers end {self._worker_id} --evidence TEXT"
        )

    def _observe(self, key: str, value: bytes | None) -> None:
        taken = self._names.take(key, value)
        if name_of(key) != self._worker_id:
            return
        name, entry = self._names[self._worker_id], entry_of(key, value)
        end = name.ended.get(self._incarnation)
        if entry is not None and entry.live == self._incarnation:
            self._read_back.set()
        if end is not None:
            self._stand_down(f"{end.how}, by {end.by}" if end.how == HUMAN else end.how)
        elif key != self._worker_id or name.live != self._incarnation:
            return
        elif not taken.counts or entry is None or name.hides(entry):
            self._contested.set()

    async def _append(self, entry: WorkerEntry) -> None:
        await announce(self._appender, self._clock, entry)
