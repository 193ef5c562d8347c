"""Who lives under a worker's name: one fold of the topic `workers`, the same for everyone (docs/guarantees.md).

A record takes a name only if nobody lives under it, or if it says how the one who does is known to have ended or that
he has left. All else is void: of two that start at once the second is, whoever wrote it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from aetheris.protocol.messages.commands import Ended, WorkerEntry

LOCK, HUMAN, REFUSED = "lock", "human", "refused"
"""How an end is known: its lock is free; somebody says so; it came second, and never took a call up."""

MAX_REMEMBERED = 200
"""Incarnations of a name that an entry repeats; whoever needs older ones has long read them."""

Life = tuple[str, str]
"""(worker_id, incarnation)"""


@dataclass(slots=True)
class Name:
    """A name as the records so far say: `live` has it now, `left` may still act and have given it up."""

    live: str | None = None
    since: str | None = None
    left: dict[str, None] = field(default_factory=dict[str, None])
    ended: dict[str, Ended] = field(default_factory=dict[str, Ended])

    def may_act(self, incarnation: str) -> bool:
        """Whether it was ever said to live or to have left, and not to have ended."""
        return incarnation == self.live or incarnation in self.left

    def entry(self, worker_id: str, live: str | None, since: str | None, *ended: Ended) -> WorkerEntry:
        """What says the same with another `live`, and with these ends too."""
        known = {one.incarnation: one for one in (*self.ended.values(), *ended)}
        left = tuple(one for one in self.left if one not in known)
        return WorkerEntry(
            worker_id=worker_id,
            live=live,
            since=since,
            left=left[-MAX_REMEMBERED:],
            ended=tuple(known.values())[-MAX_REMEMBERED:],
        )


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """What came of a record: `ended` are the lives that are known to have ended since; none of a void one."""

    counts: bool
    ended: Sequence[Life] = ()


_VOID = WorkerChange(counts=False)


class Names:
    """Every name, from the records of `workers` in log order."""

    def __init__(self) -> None:
        self._names: dict[str, Name] = {}

    def __getitem__(self, worker_id: str) -> Name:
        return self._names.get(worker_id) or Name()

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self._names

    def __iter__(self) -> Iterator[tuple[str, Name]]:
        return iter(sorted(self._names.items()))

    def take(self, key: str, value: bytes | None) -> WorkerChange:
        """Fold the next record."""
        entry = entry_of(key, value)
        if entry is None:
            return _VOID
        name = self._names.get(key) or Name()
        if not _counts(name, entry):
            return _VOID
        self._names[key] = name
        ends = [one for one in entry.ended if one.incarnation not in name.ended]
        name.ended |= {one.incarnation: one for one in ends}
        if name.live != entry.live:
            name.since = entry.since
        name.live = entry.live if entry.live not in name.ended else None
        name.left = {one: None for one in (*name.left, *entry.left) if one not in name.ended}
        return WorkerChange(counts=True, ended=[(key, one.incarnation) for one in ends])


def entry_of(key: str, value: bytes | None) -> WorkerEntry | None:
    """A record's entry; None where it is none, or another name's."""
    try:
        entry = WorkerEntry.model_validate_json(value or b"")
    except ValidationError:
        return None
    return entry if entry.worker_id == key else None


def _counts(name: Name, entry: WorkerEntry) -> bool:
    if entry.live in name.ended:
        return False
    gone = {*entry.left, *(one.incarnation for one in entry.ended)}
    return name.live is None or name.live == entry.live or name.live in gone
