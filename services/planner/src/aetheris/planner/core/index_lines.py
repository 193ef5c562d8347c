"""A job's line in jobs.index: what it says, and when it is written anew."""

from collections.abc import Callable, Mapping
from typing import Protocol

from aetheris.planner.core.decisions import IndexUpdate
from aetheris.planner.core.progress import IndexLine, JobProgress
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.fold.start import frozen_by
from aetheris.protocol.messages.commands import JobIndexEntry, ListedFreeze, ListedPause, OpenRequest


class KnownJob(Protocol):
    """What jobs.index says of a job, of whatever age."""

    @property
    def birth(self) -> int:
        """The offset of its job_created."""
        ...

    @property
    def request_hash(self) -> str:
        """What it was asked for."""
        ...

    @property
    def status(self) -> str:
        """As it was last told."""
        ...

    @property
    def paused(self) -> ListedPause | None:
        """The pause that it is in."""
        ...

    @property
    def frozen(self) -> ListedFreeze | None:
        """The freeze that it is in."""
        ...

    @property
    def requests(self) -> tuple[OpenRequest, ...]:
        """What waits for a human."""
        ...

    @property
    def partition(self) -> int | None:
        """Where it lies, if in another one than its id names."""
        ...

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Where its records lie up to its seal; none while that is not told."""
        ...


Indexed = Callable[[str], KnownJob | None]
"""The line of a job in jobs.index, as far as the table was read."""
_KEPT = 10_000
"""Lines of sealed jobs that are held until the table shows them: one that was never written is not held for ever."""


def drop_shown(held: dict[str, JobIndexEntry], indexed: Indexed) -> None:
    """Let go of the oldest lines that the table shows by now."""
    while held:
        oldest, line = next(iter(held.items()))
        shown = indexed(oldest)
        if len(held) <= _KEPT and (shown is None or len(shown.stretches) < len(line.stretches)):
            break
        del held[oldest]


def update(progress: JobProgress) -> IndexUpdate | None:
    """The line, where it says something else than the one written last."""
    if progress.sent.end and progress.job.terminal is None:
        return None  # its end is about to be told
    line = (
        _status(progress),
        _listed_pause(progress),
        _listed_freeze(progress),
        progress.open_requests,
        progress.seal_lies,
    )
    if line == progress.sent.index:
        return None
    progress.sent.index = line
    return IndexUpdate(entry(progress))


def written(progress: JobProgress, indexed: Indexed) -> IndexLine | None:
    """What the line said that was written last, as far as it was read."""
    line = indexed(progress.job.job_id)
    if line is None or line.birth != progress.job.creation_offset:
        return None
    return line.status, line.paused, line.frozen, line.requests, bool(line.stretches)


def entry(progress: JobProgress) -> JobIndexEntry:
    """The line as it is now."""
    created = progress.job.created
    return JobIndexEntry(
        job_id=created.job_id,
        birth=progress.job.creation_offset,
        request_hash=created.request_hash,
        status=_status(progress),
        tenant=created.tenant,
        submitted_by=created.submitted_by,
        created_at=progress.created_at,
        requests=progress.open_requests,
        trace=progress.job.trace,
        paused=_listed_pause(progress),
        frozen=_listed_freeze(progress),
        labels=created.labels,
        stretches=progress.stretches.told() if progress.seal_lies else (),
    )


def _listed_pause(progress: JobProgress) -> ListedPause | None:
    pause = progress.job.paused
    if pause is None or _status(progress) != "paused":
        return None
    return ListedPause(number=pause.number, by=pause.by, reason=pause.reason)


def _listed_freeze(progress: JobProgress) -> ListedFreeze | None:
    freeze = frozen_by(progress.job, None)
    if freeze is None or _status(progress) != "frozen":
        return None
    scope = freeze.scope.model_dump()
    return ListedFreeze(**scope, number=freeze.number, by=freeze.by, at=freeze.at, reason=freeze.reason)


def _status(progress: JobProgress) -> str:
    job = progress.job
    if job.terminal is not None:
        return job.terminal.event_type.removeprefix("job_")
    if job.needs_upgrade:
        return "needs_upgrade"
    if job.paused is not None:
        return "paused"
    if frozen_by(job, None) is not None:
        return "frozen"
    waits = progress.waits and not progress.waits_for_upgrade
    return "waiting" if waits and not progress.at_work else "running"


def stretches(job_id: str, forgotten: Mapping[str, JobIndexEntry], indexed: Indexed) -> tuple[Stretch, ...]:
    """Where the records of a job lie that is sealed, by its line; empty of any other."""
    try:
        known = forgotten.get(job_id) or indexed(job_id)
    except ValueError:  # a line that nobody can read tells of no seal
        return ()
    return () if known is None else known.stretches
