"""The jobs that a service follows in one partition: those at rest as a few bytes each (docs/adr/0021-jobs-at-rest.md).

A job of which nothing is due, and that nobody has asked for in a while, is packed; whoever asks for it has it as it
was. The bytes are this process's own: they are neither written nor sent, and nothing but what was packed is unpacked.
"""

import pickle
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

Job = TypeVar("Job")
Brief = TypeVar("Brief")

QUIET = 5
"""So many calls of `rest` a job must not have been asked for before it is packed."""
_PACKED, _LOOKED_AT = 80, 400
"""Jobs a call of `rest`: some 20 ms, after which others of the process have theirs."""
AWAKE_ON_THE_WAY = 100
"""Jobs of a partition that are all awake while history is read: to pack fewer would only keep a restart longer."""
_WINDOW = 32 * 1024
"""What zlib looks back on."""
_ALIKE = 3
"""Packed by the words of another job, one takes a third at most: else its own words are the next ones' to share."""


class _AtRest(NamedTuple):
    """A packed job, and what is asked of it without waking it."""

    frame: bytes
    words: bytes
    """Of a job before it, shared by many: what it has in common with that it says by pointing there."""
    birth: int
    brief: object
    told: int
    """How much of what was done to all jobs it has lived through."""


class Resting(NamedTuple):
    """How many jobs are at rest, and how many bytes they are packed into."""

    jobs: int = 0
    packed: int = 0


NONE_AT_REST = Resting()


class JobTable(Generic[Job, Brief]):
    """job_id → job, in the order in which they were put in.

    What `get` and `[]` return may be changed until the next `rest`; longer by who keeps `may_rest` from being true.
    """

    def __init__(
        self, birth_of: Callable[[Job], int], may_rest: Callable[[Job], bool], brief_of: Callable[[Job], Brief]
    ) -> None:
        """`birth_of`: where it was created, in the log. `may_rest`: whether nothing is under way or due by the clock.

        `brief_of`: what is asked of jobs at rest, often, by `briefs`; it changes with the job alone.
        """
        self._birth_of = birth_of
        self._may_rest = may_rest
        self._brief_of = brief_of
        self._jobs: dict[str, Job | _AtRest] = {}
        self._awake: dict[str, int] = {}
        """When each was asked for last, by `_round`; the one first at which `rest` looks next."""
        self._round = 0
        self._told: list[Callable[[Job], None]] = []
        self._words = b""
        self._bytes = 0
        """Of all frames."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __getitem__(self, job_id: str) -> Job:
        found = self.get(job_id)
        if found is None:
            raise KeyError(job_id)
        return found

    def __setitem__(self, job_id: str, job: Job) -> None:
        self._forget(self._jobs.get(job_id))
        self._jobs[job_id] = job
        self._awake[job_id] = self._round

    def __delitem__(self, job_id: str) -> None:
        self._forget(self._jobs.pop(job_id))
        self._awake.pop(job_id, None)

    def get(self, job_id: str) -> Job | None:
        """A job, awake from now on; None if there is none."""
        found = self._jobs.get(job_id)
        if found is None:
            return None
        self._awake[job_id] = self._round
        return self._wake(job_id, found) if isinstance(found, _AtRest) else found

    def peek(self, job_id: str) -> Job | None:
        """A job, to be read at once and not changed: one at rest stays so; None if there is none."""
        found = self._jobs.get(job_id)
        return self._unpacked(found) if isinstance(found, _AtRest) else found

    @property
    def at_rest(self) -> int:
        """How many are."""
        return len(self._jobs) - len(self._awake)

    @property
    def resting(self) -> Resting:
        """The same, and what they take."""
        return Resting(self.at_rest, self._bytes)

    def awake(self) -> Iterator[Job]:
        """Those that are: all of which `may_rest` is not true, and others. To be gone through at once."""
        return (job for job in self._jobs.values() if not isinstance(job, _AtRest))

    def each(self) -> Iterator[Job]:
        """All, in turn; one at rest is awake until the next is asked for, and is packed again if it may rest."""
        for job_id in list(self._jobs):
            held = self._jobs.get(job_id)
            job = self.get(job_id) if isinstance(held, _AtRest) else held
            if job is None:
                continue  # forgotten meanwhile
            yield job
            if isinstance(held, _AtRest) and self._jobs.get(job_id) is job and self._may_rest(job):
                self._lay_down(job_id, job)

    def survey(self) -> Iterator[Job | Brief]:
        """All, in turn: those awake as they are, those at rest by what is asked of them without waking them."""
        return (job.brief if isinstance(job, _AtRest) else job for job in self._jobs.values())  # type: ignore[misc]

    def births(self) -> Iterator[tuple[str, int]]:
        """All, each with its birth."""
        for job_id, job in self._jobs.items():
            yield job_id, job.birth if isinstance(job, _AtRest) else self._birth_of(job)

    def briefs(self) -> Iterator[tuple[str, Brief]]:
        """All, each with what is asked of it without waking it."""
        for job_id, job in self._jobs.items():
            yield job_id, job.brief if isinstance(job, _AtRest) else self._brief_of(job)  # type: ignore[misc]

    def tell_all(self, change: Callable[[Job], None]) -> None:
        """Do something to each: to one at rest when it wakes, before anybody has it. It must not ask for others."""
        for job in self.awake():
            change(job)
        if self.at_rest:
            self._told.append(change)

    def rest(self, quiet: int = QUIET) -> None:
        """Pack some of what nobody has asked for in the last `quiet` calls; nobody may hold any of it meanwhile."""
        self._rest(quiet, _PACKED, _LOOKED_AT)

    def rest_on_the_way(self, quiet: int = 1, above: int = AWAKE_ON_THE_WAY) -> None:
        """The same while history is read, of all, where more are awake: they would make the process large for ever."""
        if len(self._awake) > above:
            self._rest(quiet, len(self._awake), len(self._awake))

    def _rest(self, quiet: int, room: int, looked_at: int) -> None:
        self._round += 1
        for job_id in list(islice(self._awake, looked_at)):
            asked, job = self._awake.pop(job_id), self._jobs[job_id]
            self._awake[job_id] = asked
            if room and self._round - asked > quiet and not isinstance(job, _AtRest) and self._may_rest(job):
                room -= 1
                self._lay_down(job_id, job)
        if not self.at_rest:
            self._told.clear()

    def _lay_down(self, job_id: str, job: Job) -> None:
        packed = self._packed(job)
        if packed is not None:
            del self._awake[job_id]
            self._jobs[job_id] = packed
            self._bytes += len(packed.frame)

    def _packed(self, job: Job) -> _AtRest | None:
        try:
            raw = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, RecursionError, TypeError, AttributeError):
            return None  # too deep, or of something that only lives: it costs what it did
        frame, words = _deflated(raw, self._words), self._words
        if len(frame) * _ALIKE > len(raw):
            self._words = raw[-_WINDOW:]
        return _AtRest(frame, words, self._birth_of(job), self._brief_of(job), len(self._told))

    def _wake(self, job_id: str, packed: _AtRest) -> Job:
        job = self._jobs[job_id] = self._unpacked(packed)
        self._forget(packed)
        return job

    def _unpacked(self, packed: _AtRest) -> Job:
        inflate = zlib.decompressobj(zdict=packed.words)
        job: Job = pickle.loads(inflate.decompress(packed.frame) + inflate.flush())  # noqa: S301  packed right here
        for change in self._told[packed.told :]:
            change(job)
        return job

    def _forget(self, packed: object) -> None:
        """What is packed no more counts no more."""
        if isinstance(packed, _AtRest):
            self._bytes -= len(packed.frame)


def _deflated(raw: bytes, words: bytes) -> bytes:
    deflate = zlib.compressobj(3, zdict=words)
    return deflate.compress(raw) + deflate.flush()
