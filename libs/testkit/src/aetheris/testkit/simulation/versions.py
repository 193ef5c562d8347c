"""Two versions at once, simulated: some processes are of a newer one, and write records that those before can't read.

Such a record is of a known type in a later major version, or has a value where a rule decides that only the newer
version knows (docs/events.md): who is of the earlier version is told of its job, its offset, and no more.
"""

from dataclasses import dataclass, field

from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.surroundings import SimulationSurroundings

NEWER = 0.12
"""How likely a record of a newer process is one that only its version reads."""


def is_newer(around: SimulationSurroundings) -> bool:
    """Whether a process that starts now is of the newer version: all are, at the end, and where there is no other."""
    return not around.mixed or around.calm or around.tape.chance(0.5)


def writes_newer(around: SimulationSurroundings, *, newer: bool) -> float:
    """How likely each record of a process is one that only the newer version reads."""
    return NEWER if around.mixed and newer else 0.0


@dataclass(slots=True)
class ReadableRecords:
    """What one process reads of its partition's jobs.events, by its version."""

    around: SimulationSurroundings
    name: str
    newer: bool
    unread: dict[str, int] = field(default_factory=dict[str, int])
    """Job → where the first of its records lies that it can't read."""

    def reads(self, entry: Entry) -> bool:
        """Whether it can read a record; if not, it has met it."""
        if self.newer or entry.record.offset not in self.around.log.newer:
            return True
        self.unread.setdefault(entry.body.job_id, entry.record.offset)
        return False

    def decides(self, job_id: str, what: str, at: int | None = None) -> None:
        """It says something of a job, or acts for it, by what lies below `at`; by all that it has read, if not given.

        Raises:
            Broken: of a job that it can't read whole.
        """
        met = self.unread.get(job_id)
        if met is not None and (at is None or met < at):
            raise Broken("who_cannot_read_a_job_decides_nothing", f"{self.name}: {what} of {job_id}, unread at {met}")
