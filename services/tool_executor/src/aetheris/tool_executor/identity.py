"""Who this process is: a lock on a file under its stable name, and a fresh incarnation (docs/guarantees.md).

Whoever holds the lock proves that every earlier incarnation of the name has ended.
"""

import fcntl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aetheris.protocol.base.ids import check_name
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Ended, ModelEntry, RegistryEntry, WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.base.ids import fresh_id
from aetheris.runtime.base.refusal import Refused
from aetheris.runtime.log.interface import Appender, Log
from aetheris.runtime.log.table import Table
from aetheris.runtime.process.withheld import write_all
from aetheris.tool_executor.core.partition import Worker
from aetheris.tool_executor.performing import SOURCE

HOW = "lock"
MAX_ENDED = 1000
"""Incarnations that are remembered; the ledger has long read older ones."""

_PAUSE_S = 0.05


class WorkerIdTaken(Refused):
    """Another live process has this worker_id: give this one its own AETHERIS_WORKER_ID."""

    code = "worker_id_taken"


class AnnouncementRefused(Refused):
    """Kafka will not have what this executor says of itself or of a tool: raise the topic's max.message.bytes."""

    code = "announcement_refused"


@asynccontextmanager
async def locked(data: Path, worker_id: str, clock: Clock, patience_s: float = 10.0) -> AsyncGenerator[None]:
    """Hold the name's lock; a predecessor that is still draining is waited for.

    Raises:
        WorkerIdTaken: the lock wasn't free within `patience_s`.
        InvalidName: the worker_id is no name.
    """
    folder = data / "workers"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{check_name(worker_id, 'worker_id')}.lock").open("ab") as file:
        until = clock.monotonic() + patience_s
        while not _try_lock(file.fileno()):
            if clock.monotonic() >= until:
                raise WorkerIdTaken(f"another process runs as {worker_id}: set AETHERIS_WORKER_ID")
            await clock.sleep(_PAUSE_S)
        yield


async def announce(
    log: Log, appender: Appender, clock: Clock, worker_id: str, callable_: Sequence[RegistryEntry | ModelEntry]
) -> Worker:
    """Say who lives under the name now, who has ended, and what can be called; call it under the lock.

    Raises:
        AnnouncementRefused: a line of it is larger than its topic allows.
    """
    workers = Table(log, Topic.WORKERS)
    await workers.load()
    incarnation = fresh_id()
    entry = succession(workers.get(worker_id), worker_id, incarnation)
    time = clock.now().isoformat()
    drafts = [_table_draft(Topic.WORKERS, entry, worker_id, time)]
    drafts += [_table_draft(Topic.TOOLS_REGISTRY, one, one.key, time) for one in callable_]
    for refusal in await write_all(appender, [(one,) for one in drafts]):
        name = refusal.group[0].key.decode(errors="replace")
        raise AnnouncementRefused(f"Kafka will not have the entry of {name} in {refusal.group[0].topic}: {refusal.why}")
    return Worker(worker_id, incarnation)


def succession(old: bytes | None, worker_id: str, incarnation: str) -> WorkerEntry:
    """The entry of a new incarnation: the lock proves that the one before has ended."""
    if old is None:
        return WorkerEntry(worker_id=worker_id, live=incarnation)
    before = WorkerEntry.model_validate_json(old)
    ended = (*before.ended, Ended(incarnation=before.live, how=HOW))
    return WorkerEntry(worker_id=worker_id, live=incarnation, ended=ended[-MAX_ENDED:])


def _table_draft(topic: Topic, body: WorkerEntry | RegistryEntry | ModelEntry, key: str, time: str) -> Draft:
    return draft(topic, body, key=key, id=fresh_id(), source=SOURCE, time=time)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
