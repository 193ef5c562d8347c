"""Other jobs, of which a job's log says that they begin, or wait for its end: what their planners are told (pure).

(docs/workflows.md, "Jobs of its own".) Each word is said once, and again after a restart: heard twice it does nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aetheris.planner.core.decisions import RefusedSubmission, SubmissionConflict, Tell
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.begun import child_job_id, end_key, is_end_key
from aetheris.protocol.messages.commands import BeginJob, Submit
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import JOB_START
from aetheris.protocol.planning.child_jobs import (
    begins_job,
    begun_by,
    cancel_of,
    end_of,
    has_begun,
    is_detached,
    refused,
    successor_of,
)


@dataclass(slots=True)
class ChildJobs:
    """Of one job: those that it has begun, and what was said of them."""

    untold: list[str] = field(default_factory=list[str])
    """Nodes whose calls have succeeded, and whose jobs nobody was told to begin."""
    open: dict[str, str] = field(default_factory=dict[str, str])
    """Key of the end that it waits for → the job, of those that end with it."""
    stopped: bool = False
    """Whether those were told that it has."""
    ended: bool = False
    """Whether its own end was told."""

    def note(self, job: JobState, event: Event) -> None:
        """Follow an event that the fold took."""
        if isinstance(event, ev.SignalReceived):
            self._heard(event)
        elif isinstance(event, ev.ToolInvocationFinished) and job.bodies is not None:
            self._settled(job, event.node_id)

    def words(self, job: JobState) -> Iterator[Tell]:
        """What others are to be told now."""
        untold, self.untold = self.untold, []
        for node_id in untold:
            child = child_job_id(job.job_id, node_id)
            if end_key(child) not in job.signals:
                yield Tell(begun_by(job, node_id), job.job_id)
        if not self.stopped and _has_stopped(job):
            self.stopped = True
            for child in self.open.values():
                yield Tell(cancel_of(job, child), job.job_id)
        if not self.ended and job.terminal is not None:
            self.ended = True
            yield from _of_end(job)

    def _settled(self, job: JobState, node_id: str) -> None:
        entry = job.entry(node_id)
        if entry is None or not begins_job(entry) or entry.node.tool != JOB_START or not has_begun(job, node_id):
            return
        self.untold.append(node_id)
        if not is_detached(entry):
            child = child_job_id(job.job_id, node_id)
            self.open[end_key(child)] = child

    def _heard(self, event: ev.SignalReceived) -> None:
        """It was told how one has ended: what goes on in its place is stopped in its place, too."""
        if not is_end_key(event.correlation_key) or self.open.pop(event.correlation_key, None) is None:
            return
        following = event.payload.get("continued_as") if isinstance(event.payload, dict) else None
        if isinstance(following, str):
            self.open[end_key(following)] = following


UNRECORDABLE = "its plan is too large to be recorded"


def refusal_of(command: Submit, decided: object) -> Iterator[Tell]:
    """What is said where a submission came to no job."""
    if isinstance(decided, RefusedSubmission):
        yield from refusal(command, decided.reason)
    elif isinstance(decided, SubmissionConflict):
        yield from refusal(command, "another job has its id")


def refusal(command: object, why: str) -> Iterator[Tell]:
    """No job can come of a submission: whoever waits for that one's end hears it."""
    said = refused(command, why) if isinstance(command, BeginJob) else None
    if said is not None:
        yield Tell(said, said.payload["job_id"])


def _has_stopped(job: JobState) -> bool:
    return job.terminal is not None or job.stopping is not None


def _of_end(job: JobState) -> Iterator[Tell]:
    following = successor_of(job)
    if following is not None:
        yield Tell(begun_by(job, following), job.job_id)
    told = end_of(job)
    if told is not None:
        yield Tell(told, job.job_id)
