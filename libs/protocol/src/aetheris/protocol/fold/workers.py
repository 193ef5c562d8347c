"""Who lives under a worker's name: one fold of the topic `workers`, the same for everyone (docs/guarantees.md).

That a life has left, or has ended, its word proves wherever it lies; that it has ended, also a person does, through the
gateway. A line takes a name only if nobody lives under it then: of two that start at once the second's is void.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Reversible, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pydantic import BaseModel, ConfigDict, ValidationError

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import MAX_REMEMBERED, LifeWord, life_of
from aetheris.protocol.messages.commands import WorkerEnd, WorkerEntry

LOCK, HUMAN = "lock", "human"
"""How an end is known: its lock is free; somebody says so."""

Life = tuple[str, str]
"""(worker_id, incarnation)"""

MAX_LIVES = 10_000
"""Lives of a name that have left or ended; beyond so many, words count only about a life that was seen here.

Anybody makes up lives and says that they have ended. Of one that nobody has seen live, it decides no call.
"""


class Ended(BaseModel):
    """An incarnation of a worker that can act no more, and how that is known."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    how: str
    by: str | None = None
    principal: RecordedPrincipal | None = None
    evidence: str | None = None


@dataclass(slots=True)
class Name:
    """A name as the records so far say: `live` has it now, `left` may still act and have given it up."""

    live: str | None = None
    since: str | None = None
    left: dict[str, str] = field(default_factory=dict[str, str])
    """incarnation → the word that it left with"""
    ended: dict[str, Ended] = field(default_factory=dict[str, Ended])
    _words: dict[str, None] = field(default_factory=dict[str, None])
    """Those that prove ends, in log order."""

    def may_act(self, incarnation: str) -> bool:
        """Whether it was ever said to live or to have left, and not to have ended."""
        return incarnation == self.live or incarnation in self.left

    def entry(
        self,
        worker_id: str,
        live: str | None,
        since: str | None,
        *,
        left: Iterable[str] = (),
        ended: Sequence[str] = (),
    ) -> WorkerEntry:
        """What says the same with another `live`, and with these words too."""
        gone = {life_of(LifeWord.ENDED, word) for word in ended}
        words = dict.fromkeys((*_newest(self._words.keys(), MAX_REMEMBERED), *ended))
        still = dict.fromkeys((*_newest(self.left.values(), MAX_REMEMBERED + len(gone)), *left))
        return WorkerEntry(
            worker_id=worker_id,
            live=live,
            since=since,
            left=tuple(word for word in still if self._is_left(word, gone))[-MAX_REMEMBERED:],
            ended=tuple(words)[-MAX_REMEMBERED:],
        )

    def take(self, entry: WorkerEntry) -> tuple[bool, list[str]]:
        """Whether the line says who lives, and who is known to have ended since."""
        ends = [one for word in entry.ended for one in self._ended_by(word)]
        for word in entry.left:
            incarnation = life_of(LifeWord.LEFT, word)
            if incarnation is not None and incarnation not in self.ended and self._has_room_for(incarnation):
                self._free(incarnation)
                self.left[incarnation] = word
        live = entry.live
        if self.live is None and live not in self.ended and live not in self.left:
            self.live, self.since = live, entry.since if live is not None else None
        return self.live == live, ends

    def hides(self, entry: WorkerEntry) -> bool:
        """Whether who reads this line alone would not know of an end that is proved."""
        told = sum(word in self._words for word in set(entry.ended))
        return told < len(self._words) and len(entry.ended) < MAX_REMEMBERED

    def end(self, ended: Ended) -> list[str]:
        """Who is known to have ended by it, and was not before."""
        incarnation = ended.incarnation
        if incarnation in self.ended:
            return []
        self.ended[incarnation] = ended
        self.left.pop(incarnation, None)
        self._free(incarnation)
        return [incarnation]

    def _ended_by(self, word: str) -> list[str]:
        incarnation = life_of(LifeWord.ENDED, word)
        if incarnation is None or not self._has_room_for(incarnation):
            return []
        self._words[word] = None
        return self.end(Ended(incarnation=incarnation, how=LOCK))

    def _has_room_for(self, incarnation: str) -> bool:
        return len(self.left) + len(self.ended) < MAX_LIVES or self.may_act(incarnation) or incarnation in self.ended

    def _is_left(self, word: str, gone: Container[str | None]) -> bool:
        incarnation = life_of(LifeWord.LEFT, word)
        return incarnation not in self.ended and incarnation not in gone

    def _free(self, incarnation: str) -> None:
        if self.live == incarnation:
            self.live = self.since = None


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """What came of a record: `ended` are the lives that are known to have ended since."""

    counts: bool
    ended: Sequence[Life] = ()


_VOID = WorkerChange(counts=False)


class Names:
    """Every name, from the records of `workers` in log order."""

    def __init__(self, is_theirs: Callable[[str, str, bytes, bytes], bool]) -> None:
        """`is_theirs` says by topic, type, key and value which people's words count."""
        self._is_theirs = is_theirs
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
        if entry is not None:
            counts, ends = self._names.setdefault(key, Name()).take(entry)
            return WorkerChange(counts, [(key, incarnation) for incarnation in ends])
        end = WorkerEnd.read(key, value)
        if end is None or not self._is_theirs(Topic.WORKERS, end.type_name, key.encode(), value or b""):
            return _VOID
        said = Ended(incarnation=end.incarnation, how=HUMAN, by=end.by, principal=end.principal, evidence=end.evidence)
        ends = self._names.setdefault(end.worker_id, Name()).end(said)
        return WorkerChange(counts=True, ended=[(end.worker_id, incarnation) for incarnation in ends])


def name_of(key: str) -> str:
    """The name that a record is about, by its key."""
    return key.partition(":")[0]


def entry_of(key: str, value: bytes | None) -> WorkerEntry | None:
    """A record's entry; None where it is none, or another name's."""
    try:
        entry = WorkerEntry.model_validate_json(value or b"")
    except ValidationError:
        return None
    return entry if entry.worker_id == key else None


def _newest(words: Reversible[str], count: int) -> Iterable[str]:
    """The last of them, in their order."""
    return tuple(islice(reversed(words), count))[::-1]
