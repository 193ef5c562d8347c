"""What a person's word on a job's pause comes to: it is about one pause, by its number (docs/pause.md)."""

from dataclasses import dataclass

from aetheris.planner.core.decisions import Append, fact
from aetheris.planner.core.progress import JobProgress
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Pause, Resume


@dataclass(frozen=True, slots=True)
class PendingPause:
    """A pause or a resume, as it was read."""

    command: Pause | Resume
    command_id: str
    offset: int


def is_ahead(job: JobState, command: Pause | Resume) -> bool:
    """Whether who wrote it had read of a pause, or of its end, what is not folded here yet."""
    known = job.pauses + 1 if isinstance(command, Pause) and job.paused is None else job.pauses
    return command.number > known


def pause_event(progress: JobProgress, action: PendingPause) -> Append | None:
    """The event that it becomes; None where its pause is over, or was ended or begun by somebody else."""
    job, sent, command = progress.job, progress.sent, action.command
    if job.terminal is not None or job.cancel is not None or sent.end or sent.cancel:
        return None
    if isinstance(command, Pause):
        if job.paused is not None or command.number <= max(job.pauses, sent.paused):
            return None
        sent.paused = command.number
    else:
        if job.paused is None or command.number != job.paused.number or command.number <= sent.resumed:
            return None
        sent.resumed = command.number
    kind = ev.JobPaused if isinstance(command, Pause) else ev.JobResumed
    event = kind(
        job_id=job.job_id, caused_by=action.command_id, number=command.number, by=command.by, reason=command.reason
    )
    return fact(event, action.command_id)
