"""Lines of jobs.index that wait a moment: no job goes on by them, and a request of their own is as dear as any."""

from collections.abc import Iterable, Sequence

from aetheris.planner.core.decisions import IndexUpdate

WITHIN_S = 0.005
"""After which they are written by themselves."""


class WaitingLines:
    """Of one partition, each job's newest."""

    def __init__(self) -> None:
        self._lines: dict[str, IndexUpdate] = {}

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._lines)

    def put(self, lines: Iterable[IndexUpdate]) -> None:
        """They take the place of what waits of the same jobs."""
        for line in lines:
            self._lines.pop(line.entry.job_id, None)
            self._lines[line.entry.job_id] = line

    def take(self) -> Sequence[IndexUpdate]:
        """All, in the order in which they came; they wait no more."""
        taken, self._lines = self._lines, {}
        return list(taken.values())

    def live(self) -> Iterable[tuple[str, int]]:
        """Their jobs, each with its birth: whoever restarts decides on what was not written by what he reads again."""
        return ((job_id, line.entry.birth) for job_id, line in self._lines.items())
