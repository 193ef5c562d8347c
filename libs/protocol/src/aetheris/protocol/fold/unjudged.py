"""Jobs that this process fails to judge: they stand still, and hold up no other (docs/architecture.md, "Failures")."""

from dataclasses import dataclass, field
from typing import Protocol


class JudgedJob(Protocol):
    """A job as a service keeps it."""

    needs_upgrade: bool

    @property
    def job_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class JudgementFailure:
    """A job, and the error that judging it ended with; its text may quote a payload, so only its class is told."""

    job_id: str
    error: Exception

    @property
    def place(self) -> str:
        """Where it was raised: function and line of the innermost frame."""
        trace = self.error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        return "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"


@dataclass(slots=True)
class Unjudged:
    """What failed since it was last told."""

    failures: list[JudgementFailure] = field(default_factory=list)

    def note(self, job: JudgedJob, error: Exception) -> None:
        """Decide nothing more about the job: it waits for a version that can, as behind a record that can't be read."""
        job.needs_upgrade = True
        self.failures.append(JudgementFailure(job.job_id, error))

    def take(self) -> list[JudgementFailure]:
        """The failures since the last call."""
        taken, self.failures = self.failures, []
        return taken
