"""Jobs that this partition's log has placed in others, as there are more than the installation began with (pure).

Which partition says where a job is created follows from its id, for ever. In that one's log the first word holds, a
creation or a placement, whatever its writer believed of how many there are (docs/growing.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aetheris.planner.core.index_lines import Indexed
from aetheris.protocol.messages.commands import PLACED_KEY, JobPlaced

PartitionOf = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """`named`: the partition that a job's id names; `home`: the one where a job is to be created now."""

    named: PartitionOf
    home: PartitionOf


@dataclass(frozen=True, slots=True)
class _Placement:
    barrier: JobPlaced
    offset: int


@dataclass(slots=True)
class JobPlacements:
    """Of one partition, `number`; without `places` nothing lies elsewhere."""

    number: int = 0
    places: JobPlaces | None = None
    _placed: dict[str, _Placement] = field(default_factory=dict)
    """In log order: those that jobs.index does not show yet, and that nobody has refused there."""
    words: list[int] = field(default_factory=list[int])
    """Offsets of commands that came before their job's submission was passed on: they are read again behind it."""

    def elsewhere(self, job_id: str, indexed: Indexed) -> int | None:
        """The other partition in which a job lies, or is to; None where that is not known, or it lies here."""
        placed = self._placed.get(job_id)
        if placed is not None:
            return placed.barrier.partition
        if self.places is None:
            return None
        try:
            line = indexed(job_id)
        except ValueError:  # a line that nobody can read tells of no place
            return None
        if line is None:
            return None
        lies = self.places.named(job_id) if line.partition is None else line.partition
        return None if lies == self.number else lies

    def of_new(self, job_id: str, command: int) -> JobPlaced | None:
        """Where a job is to be created that is not known; None: here. `command`: where its submission lies."""
        if not self.decides(job_id) or self.places is None:
            return None
        home = self.places.home(job_id)
        return None if home == self.number else JobPlaced(of_job=job_id, partition=home, command=command)

    def decides(self, job_id: str) -> bool:
        """Whether a job's id names this partition."""
        return self.places is None or self.places.named(job_id) == self.number

    def named(self, job_id: str) -> int | None:
        """The partition that a job's id names; None: whichever its hash points at."""
        return None if self.places is None else self.places.named(job_id)

    def stands(self, job_id: str) -> int | None:
        """What jobs.index is to say of where a job of this partition lies: nothing where its id says so."""
        return None if self.decides(job_id) else self.number

    def take(self, barrier: JobPlaced, offset: int) -> None:
        """A placement was read, of a job that is not known; the first one holds."""
        self._placed.setdefault(barrier.of_job, _Placement(barrier, offset))

    def over(self, job_id: str) -> None:
        """No job has come of it there."""
        self._placed.pop(job_id, None)

    def submissions(self) -> Iterator[tuple[str, int]]:
        """Jobs, each with the offset of the submission that is passed on again after a restart."""
        for job_id, placed in self._placed.items():
            yield job_id, placed.barrier.command

    def needed(self, indexed: Indexed) -> Iterator[tuple[str, int]]:
        """Where reading has to begin for their sake, as of a live job."""
        while self._placed:
            job_id, placed = next(iter(self._placed.items()))
            if indexed(job_id) is None:
                yield PLACED_KEY, placed.offset
                return
            del self._placed[job_id]
