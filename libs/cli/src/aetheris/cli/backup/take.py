"""Taking a backup while everything runs: where each log ends, in an order that keeps causes, then all below that."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aetheris.cli.backup import blob_copies, files
from aetheris.cli.backup.files import BackupManifest, CopiedPartition, SealTree
from aetheris.cli.backup.key_copies import KEYS
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.reachable_log import reachable
from aetheris.proofs.claims import log_entry
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.protocol.messages import events as ev
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.kafka import admin
from aetheris.runtime.kafka.tls import tls_context
from aetheris.runtime.log.interface import Log, LogGap, Place
from aetheris.runtime.log.replay import replay
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.worker import reached

Progress = Callable[[str, str], None]

ASKED_AGAIN = frozenset({Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS})
"""What is still wanted of these is asked for again, and an old grant is nothing to be found in a restored log."""
BEFORE_EVENTS = (
    Topic.LEDGER_RECORDS,
    Topic.LEDGER_CONTENTS,
    Topic.PLANNER_CHECKPOINTS,
    Topic.LEDGER_CHECKPOINTS,
    Topic.AUDIT_CHECKPOINTS,
    Topic.JOBS_INDEX,
    Topic.JOBS_ARCHIVE,
)
"""What is made of jobs.events: its end is asked for first, so that all that it says has a cause in the backup."""
BEHIND_EVENTS = (
    Topic.FREEZES,
    Topic.POLICIES,
    Topic.TOOLS_REGISTRY,
    Topic.WORKERS,
    Topic.JOBS_COMMANDS,
    Topic.ACCESS_RECORDS,
)
"""What jobs.events follows from, or stands by itself: asked for last."""
_TRIES = 20
_PAUSE_S = 0.05
_BIRTH = b"io.aetheris.job_created.v1"
_SEALS: Place = (str(Topic.JOBS_SEALS), 0)


@dataclass(frozen=True, slots=True)
class TakenBackup:
    """A backup that is whole."""

    manifest: BackupManifest
    sha256: str
    records: int
    corrupt_blobs: Sequence[str]


async def take(
    bootstrap: str, store: Blobs | None, to: Path, progress: Progress, *, keys: bytes | None = None
) -> TakenBackup:
    """Copy the log below where it ends now, and the blobs that it names, into a folder; without a store, no blob.

    `keys`: as `key_copies.sealed` makes them.

    Raises:
        CommandError: the folder is not empty; the log lost its beginning meanwhile; no broker answers.
    """
    _make(to)
    settings = load(RuntimeSettings)
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    async with reachable(bootstrap, within_s=None) as log:
        partitions = await log.partitions(Topic.JOBS_EVENTS)
        marks = await _marks(bootstrap, settings, partitions)
        ends, ahead = await _ends(log)
        cut = await _cut(log, marks, ends)
        if cut:
            progress("cut", f"of jobs.events[{', '.join(map(str, cut))}] more was read than is there")
        progress("log", f"{sum(ends.values())} offsets in {len(ends)} partitions")
        topics: dict[str, list[CopiedPartition]] = {}
        seals, roots = Tree(), set[str]()
        for (topic, number), end in ends.items():
            copied = await _copy(log, (topic, number), end, to, seals, roots)
            topics.setdefault(topic, []).append(copied)
    blobs, named, corrupt = None, None, list[str]()
    if store is not None:
        blobs, named, corrupt = await blob_copies.copy_out(store, to)
    progress("blobs", "not in it, as --no-blobs says" if blobs is None else f"{blobs} copied")
    if keys is not None:
        write_whole(to / KEYS, keys)
    manifest = BackupManifest(
        taken_at=taken_at,
        partitions=partitions,
        topics={topic: tuple(of) for topic, of in topics.items()},
        marks=marks,
        cut=cut,
        seals=SealTree(size=len(seals), root=seals.root(len(seals)).hex(), ahead=ahead),
        roots=tuple(sorted(roots)),
        blobs=blobs,
        blobs_sha256=named,
        blobs_at=settings.blobs or None,
        keys_sha256=None if keys is None else files.file_sha256(to / KEYS),
    )
    sha256 = files.save(to, manifest)
    return TakenBackup(manifest, sha256, sum(one.records for of in topics.values() for one in of), corrupt)


def _make(to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True, mode=0o700)
    if any(to.iterdir()):
        raise CommandError(Exit.BAD_INPUT, "not_empty", f"{to} is not empty: name a new folder", field="TO")


async def _marks(
    bootstrap: str, settings: RuntimeSettings, partitions: int
) -> Mapping[str, Mapping[str, Mapping[int, int]]]:
    """Of this installation's groups, before any end: no mark is behind what is copied."""
    found: dict[str, dict[str, Mapping[int, int]]] = {}
    for topic in (one for one in Topic if one not in ASKED_AGAIN):
        said = await admin.marks(bootstrap, topic, partitions, tls=tls_context(settings), prefix=settings.prefix)
        for group, of in said.items():
            if not group.startswith("other group "):
                found.setdefault(group, {})[str(topic)] = of
    return found


async def _cut(
    log: Log, marks: Mapping[str, Mapping[str, Mapping[int, int]]], ends: Mapping[Place, int]
) -> tuple[int, ...]:
    """The partitions of jobs.events that end below what a group had read, or have another record there."""
    found: set[int] = set()
    for group, topics in marks.items():
        of = topics.get(Topic.JOBS_EVENTS, {})
        notes = await log.noted_by(group, [(str(Topic.JOBS_EVENTS), number) for number in of])
        for place, note in notes.items():
            before = reached.noted(note)
            if of[place[1]] > ends[place] or (
                before is not None and await reached.why_cut(log, place, before) is not None
            ):
                found.add(place[1])
    return tuple(sorted(found))


async def _ends(log: Log) -> tuple[dict[Place, int], int]:
    """Where each partition ends, and how many lines the log of seals got meanwhile.

    A seal is logged before it is in the job's stream, and logged of what is in the stream: so both are to end at one
    time, as they do where nothing was sealed between two looks.
    """
    before = await _ends_of(log, BEFORE_EVENTS)
    for left in reversed(range(_TRIES)):
        first = (await log.end_offsets([_SEALS]))[_SEALS]
        events = await _ends_of(log, (Topic.JOBS_EVENTS,))
        seals = (await log.end_offsets([_SEALS]))[_SEALS]
        if seals == first or not left:
            behind = await _ends_of(log, BEHIND_EVENTS)
            letters = await _ends_of(log, [dead_letters(topic) for topic in Topic])
            return {**before, **events, _SEALS: seals, **behind, **letters}, seals - first
        await asyncio.sleep(_PAUSE_S)
    raise AssertionError("it looks at least once")


async def _ends_of(log: Log, topics: Iterable[str]) -> dict[Place, int]:
    places = [(str(topic), number) for topic in topics for number in range(await log.partitions(topic))]
    return await log.end_offsets(places)


async def _copy(  # noqa: PLR0917  what is told of each partition
    log: Log, place: Place, end: int, to: Path, seals: Tree, roots: set[str]
) -> CopiedPartition:
    """One partition's records; those of the log of seals are its leaves, and births name their roots."""
    topic, number = place
    begin = (await log.beginning_offsets([place]))[place]
    path = to / files.log_path(topic, number)
    with files.lines_into(path) as lines:
        try:
            async for records in replay(log, place, begin, end):
                for record in records:
                    if record.offset >= end:
                        break
                    lines.write(files.written(record))
                    if place == _SEALS:
                        seals.append(leaf_hash(log_entry(record.value)))
                    elif topic == Topic.JOBS_EVENTS and record.header("ce_type") == _BIRTH:
                        roots |= _root(record.value)
        except LogGap as gap:
            message = f"{gap}: the log let go of it while it was copied. Take the backup again"
            raise CommandError(Exit.FAILED, gap.code, message) from None
    return CopiedPartition(
        partition=number,
        begin=min(begin, end),
        end=end,
        records=lines.count,
        lines_sha256=lines.hash.hexdigest(),
        file_sha256=files.file_sha256(path),
    )


def _root(value: bytes) -> set[str]:
    try:
        installation = ev.JobCreated.read(value).installation
    except ValueError:
        return set()
    return set() if installation is None else {installation}
