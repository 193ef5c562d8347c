"""Jobs that a service does not fold: sealed ones, known by name for a while, and those that a later version created."""

from collections.abc import Iterable

REACH = 10_000
"""Records behind what its writer had read up to which a birth counts: none further behind is a new job's (ADR 9)."""

REMEMBERED = REACH
"""At least as many as can be created, and sealed, within reach."""


def in_reach(needed: int, reach: int = REACH) -> int:
    """The mark of who needs what lies from `needed` on: he who restarts there knows by name what can come again."""
    return max(needed - reach, 0)


class SealedNames:
    """The names of the jobs that were sealed last: a late repeat of a birth does not bring one back."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    def add(self, job_id: str) -> None:
        """Remember a name; the oldest is given up for it."""
        self._names[job_id] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._names


class UnreadCreations:
    """Jobs whose very birth is of a later version: they hold the mark, so that whoever can read it finds it there."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}

    def add(self, job_id: str, offset: int) -> None:
        """Remember a job by the first of its records that can't be read."""
        self._offsets.setdefault(job_id, offset)

    def pop(self, job_id: str) -> int | None:
        """Forget a job: it is sealed, or known by another record."""
        return self._offsets.pop(job_id, None)

    def items(self) -> Iterable[tuple[str, int]]:
        """Each with that offset."""
        return self._offsets.items()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._offsets
