"""Laying a backup into an empty installation, at the offsets that it had, and a fence behind it (docs/backup.md).

The freezes come first and the log's own release last: whoever starts a service in between is refused, or finds all
frozen.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import TypeVar

from aetheris.cli import keyfiles
from aetheris.cli.backup import blob_copies, fence, files
from aetheris.cli.backup.examined import Examined
from aetheris.cli.backup.fence import RestoreOrder
from aetheris.cli.backup.files import CopiedPartition
from aetheris.cli.backup.key_copies import CHECKPOINT
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.large import store
from aetheris.cli.reachable_log import reachable
from aetheris.proofs.notes import BadNote, read_checkpoint
from aetheris.proofs.trust import LOG
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.planning.restored import HeldJob
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.kafka import admin
from aetheris.runtime.kafka.copies import CopyWriter, set_marks
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.log.interface import Log, LogUnreachable, Place
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.redis.client import Redis, RedisUnavailable

Progress = Callable[[str, str], None]
_Answer = TypeVar("_Answer")

SERVICES = (
    "aetheris.planner",
    "aetheris.ledger",
    "aetheris.tool_executor",
    "aetheris.verifier",
    "aetheris.prober",
    "aetheris.gateway",
)
_PORTION = 2_000
_KNOWN_WITHIN_S = 60.0
_LOOK_AGAIN_S = 0.2
_LET_GO = frozenset({Topic.JOBS_EVENTS, Topic.ACCESS_RECORDS})
"""Topics that may have let go of their beginning: what is filled in there is deleted again."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What holds a restored log, and what a person has to look at."""

    fence: Mapping[int, int]
    """Partition of jobs.events → the offset behind the backup's last one: the fence begins there."""
    frozen: Sequence[str]
    """Tenants."""
    jobs: Sequence[HeldJob]
    seals_lost: int | None
    """So many lines more were in the log of seals when its checkpoint was signed last; None: no such is known here."""
    new_log_key: str | None
    """The key of the log of seals from now on, where what was signed before is contradicted by what is left."""


class Restorer:
    """Into the brokers at `bootstrap`; `keys` sign the fence, as planner and gateway."""

    def __init__(
        self,
        bootstrap: str,
        redis: str,
        data: Path,
        keys: RecordKeys,
        clock: Clock | None = None,
        *,
        keys_are_copies: bool = False,
    ) -> None:
        """`keys_are_copies`: the data folder has the keys that the backup had, and knows nothing behind its end."""
        self._bootstrap, self._redis, self._data, self._keys = bootstrap, redis, data, keys
        self._keys_are_copies = keys_are_copies
        self._clock = clock or SystemClock()
        self._settings = load(RuntimeSettings)

    @property
    def _tls(self) -> SSLContext | None:
        return tls_context(self._settings)

    async def restore(
        self, found: Examined, word: RestoreOrder, tenants: Sequence[str], progress: Progress
    ) -> Restored:
        """Lay it there.

        Raises:
            CommandError: something is there already, or was laid elsewhere than it is to lie.
            LogError: the brokers don't answer, or refuse.
        """
        prefix, manifest = self._settings.prefix, found.manifest
        first = len(manifest.topics[Topic.JOBS_INDEX])
        await admin.ensure_topics(self._bootstrap, first, self._settings.replication, tls=self._tls, prefix=prefix)
        await admin.grow_topics(self._bootstrap, manifest.partitions, tls=self._tls, prefix=prefix)
        async with reachable(self._bootstrap, within_s=None) as log:
            await self._check_empty(log, manifest.partitions)
            await admin.set_restoring(self._bootstrap, restoring=True, tls=self._tls, prefix=prefix)
            await self._check_empty(log, manifest.partitions)
            async with CopyWriter(self._bootstrap, tls=self._tls, prefix=prefix) as writer:
                frozen = await self._freeze(writer, found, word, tenants)
                progress("fence", f"frozen: {', '.join(frozen) or 'no tenant is known'}")
                for topic in (one for one in manifest.topics if one not in (Topic.FREEZES, Topic.JOBS_EVENTS)):
                    await self._lay(writer, found, topic)
                    progress("laid", topic)
                await self._lay(writer, found, Topic.JOBS_EVENTS)
                progress("laid", Topic.JOBS_EVENTS)
                begins = {of.partition: of.end for of in manifest.topics[Topic.JOBS_EVENTS]}
                jobs = await self._pause(writer, found, word)
                progress("fence", f"{len(jobs)} jobs were open; {sum(job.paused for job in jobs)} of them are paused")
                await self._settle(writer, log, found, word)
                written = {place: writer.end(place) for place in self._places(found)}
            await self._check_ends(log, written)
        await self._let_go(found)
        await self._mark(found)
        if manifest.blobs is None:
            progress("blobs", f"not in the backup; they lay in {manifest.blobs_at or 'a data folder'}")
        else:
            await blob_copies.copy_in(found.folder, store(self._data))
            progress("laid", f"{manifest.blobs} blobs")
        lost, new_key = self._seal_log(found)
        await admin.set_restoring(self._bootstrap, restoring=False, tls=self._tls, prefix=prefix)
        return Restored(begins, frozen, jobs, lost, new_key)

    async def _check_empty(self, log: Log, partitions: int) -> None:
        """Whether nothing is there that a restore would be mixed with."""
        for topic in Topic:
            count = await self._insist(partial(log.partitions, topic))
            if topic == Topic.JOBS_EVENTS and count != partitions:
                raise _not_empty(f"{topic} has {count} partitions, and the backup {partitions}")
            places = [(str(topic), number) for number in range(count)]
            ends = await self._insist(partial(log.end_offsets, places))
            for (_, number), end in ends.items():
                if end:
                    raise _not_empty(f"{topic}[{number}] has had {end} records")
        for group in SERVICES:
            if await self._insist(partial(log.members, group)):
                raise _not_empty(f"somebody is in the group {group}: end every service")
        await self._check_redis()

    async def _insist(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Brokers that are new know little at first: who leads what was just created, and who is in a group."""
        until_s = self._clock.monotonic() + _KNOWN_WITHIN_S
        while True:
            try:
                return await ask()
            except LogUnreachable:
                if self._clock.monotonic() >= until_s:
                    raise
                await self._clock.sleep(_LOOK_AGAIN_S)

    async def _check_redis(self) -> None:
        redis = Redis(self._redis, prefix=self._settings.prefix)
        try:
            cursor = b"0"
            while True:
                ((cursor, keys),) = await redis.pipeline([("SCAN", cursor, "MATCH", redis.named("aetheris:*"))])
                if keys:
                    raise _not_empty("Redis holds leases, effects and lists of jobs of another log: FLUSHALL it")
                if cursor in (b"0", "0", 0):
                    break
        except RedisUnavailable as error:
            raise CommandError(Exit.UNREACHABLE, error.code, f"Redis does not answer: {error}") from None
        finally:
            await redis.close()

    async def _freeze(
        self, writer: CopyWriter, found: Examined, word: RestoreOrder, tenants: Sequence[str]
    ) -> list[str]:
        await self._lay(writer, found, Topic.FREEZES)
        place = (str(Topic.FREEZES), 0)
        names = sorted({*found.tenants, *tenants})
        for order, signed in fence.frozen(found.orders, names, self._keys, word):
            await writer.write(place, [self._record(place, writer.end(place), signed)])
            found.orders.take(order)
        held = {
            order.scope.tenant
            for order in found.orders.in_force()
            if (order.scope.agent, order.scope.tool) == (None, None)
        }
        if not held.issuperset(names):
            raise CommandError(Exit.FAILED, "not_fenced", "the freezes of the fence do not count: nothing is served")
        return names

    async def _pause(self, writer: CopyWriter, found: Examined, word: RestoreOrder) -> list[HeldJob]:
        jobs: list[HeldJob] = []
        for number, partition in found.fences.items():
            place = (str(Topic.JOBS_EVENTS), number)
            for job, group in partition.held(self._keys, word, writer.end(place)):
                begin = writer.end(place)
                await writer.write(place, [self._record(place, begin + at, one) for at, one in enumerate(group)])
                jobs.append(job)
        return jobs

    async def _settle(self, writer: CopyWriter, log: Log, found: Examined, word: RestoreOrder) -> None:
        """The log is on these brokers from here on."""
        cluster, place = await log.cluster_id(), (str(Topic.POLICIES), 0)
        if cluster is not None:
            signed = fence.settled(found.homes.next(cluster, word.at), self._keys)
            await writer.write(place, [self._record(place, writer.end(place), signed)])

    def _record(self, place: Place, offset: int, draft: Draft) -> Record:
        now_ms = int(self._clock.now().timestamp() * 1000)
        return Record(place[0], place[1], offset, now_ms, draft.key, draft.headers, draft.value)

    async def _lay(self, writer: CopyWriter, found: Examined, topic: str) -> None:
        """Every partition of a topic as it was, up to where it ended."""
        nulls = topic in _COMPACTED
        for of in found.manifest.topics[topic]:
            place, last_ms = (topic, of.partition), 0
            records = files.records_of(found.folder, topic, of)
            if topic == Topic.JOBS_INDEX and found.manifest.cut:
                records = found.births.known(records)
            for portion in _portions(records):
                await writer.write(place, portion, nulls=nulls)
                last_ms = portion[-1].timestamp_ms
            await writer.fill_up(place, of.end, last_ms or int(self._clock.now().timestamp() * 1000))

    def _places(self, found: Examined) -> list[Place]:
        return [place for place, _ in self._copied(found)]

    @staticmethod
    def _copied(found: Examined) -> Iterator[tuple[Place, CopiedPartition]]:
        for topic, partitions in found.manifest.topics.items():
            yield from (((topic, of.partition), of) for of in partitions)

    async def _check_ends(self, log: Log, written: Mapping[Place, int]) -> None:
        for place, end in (await log.end_offsets(list(written))).items():
            if end != written[place]:
                message = f"{place[0]}[{place[1]}] ends at {end}, and {written[place]} records were laid there"
                raise CommandError(Exit.FAILED, "misplaced", message)

    async def _let_go(self, found: Examined) -> None:
        """What had let go of its beginning does so again."""
        below = {
            (topic, of.partition): of.begin
            for topic, partitions in found.manifest.topics.items()
            for of in partitions
            if of.begin and topic in _LET_GO
        }
        if below:
            await admin.delete_below(self._bootstrap, below, tls=self._tls, prefix=self._settings.prefix)

    async def _mark(self, found: Examined) -> None:
        """Where groups read on. Of a partition that was cut all is read: what had ended there is open again."""
        ends = {place: of.end for place, of in self._copied(found)}
        marks = {
            group: {
                (topic, number): min(at, ends.get((topic, number), at))
                for topic, of in topics.items()
                for number, at in of.items()
                if not (topic == Topic.JOBS_EVENTS and number in found.manifest.cut)
            }
            for group, topics in found.manifest.marks.items()
        }
        marks = {group: of for group, of in marks.items() if of}
        await set_marks(self._bootstrap, marks, tls=self._tls, prefix=self._settings.prefix)

    def _seal_log(self, found: Examined) -> tuple[int | None, str | None]:
        """The log of seals is another one, under another key, where more was signed of it than is left, or may be."""
        path = self._data / "keys" / CHECKPOINT
        if self._keys_are_copies:
            return None, self._new_log_key()
        try:
            signed = read_checkpoint(path.read_text())
        except (OSError, BadNote, UnicodeDecodeError):
            return None, None
        size = len(found.seals)
        if signed.size <= size and found.seals.root(signed.size) == signed.root:
            return 0, None
        path.replace(path.with_name(f"checkpoint.{signed.size}"))
        return signed.size - size, self._new_log_key()

    def _new_log_key(self) -> str | None:
        with suppress(CommandError):  # its key is kept elsewhere
            return keyfiles.rotate(self._data / "keys", LOG, revoke=False)[1]
        return None


def _portions(records: Iterator[Record]) -> Iterator[list[Record]]:
    portion: list[Record] = []
    for record in records:
        portion.append(record)
        if len(portion) >= _PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


_COMPACTED = frozenset(
    {
        Topic.PLANNER_CHECKPOINTS,
        Topic.LEDGER_CHECKPOINTS,
        Topic.AUDIT_CHECKPOINTS,
        Topic.JOBS_INDEX,
        Topic.JOBS_ARCHIVE,
        Topic.WORKERS,
        Topic.TOOLS_REGISTRY,
        Topic.LEDGER_RECORDS,
        Topic.LEDGER_CONTENTS,
    }
)
"""Where what is empty says that a key is gone."""


def _not_empty(why: str) -> CommandError:
    message = f"{why}. A backup is laid into an installation that is empty, and that nobody runs: take fresh servers"
    return CommandError(Exit.BAD_INPUT, "not_empty", message)
