"""What the planner says of the numbers of submissions: each is answered, so that none is left out unseen (pure)."""

from dataclasses import dataclass, field

from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.submission_numbers import (
    ReceiptVoid,
    SubmissionAnswer,
    SubmissionAnswered,
    SubmissionNumber,
)


@dataclass(slots=True)
class SubmissionAnswers:
    """Of one partition. A birth answers the number that it has; a number that is read again is answered again."""

    _said: list[SubmissionAnswered] = field(default_factory=list)
    _held: dict[str, list[Submit]] = field(default_factory=dict)
    """Repeats of submissions whose births are not folded yet, by job."""

    def say(self, command: Submit | ReceiptVoid, answer: SubmissionAnswer) -> None:
        """What becomes of a number; one without has nobody who waits for it."""
        if command.receipt is not None:
            said = SubmissionAnswered(
                of_job=command.job_id,
                tenant=command.tenant,
                request_hash=command.request_hash,
                receipt=command.receipt,
                answer=answer,
            )
            self._said.append(said)

    def say_same(self, command: Submit, born_by: SubmissionNumber | None) -> None:
        """It names a job that stands; of the very number that it was created by, the birth says so."""
        if command.receipt != born_by:
            self.say(command, "same_as")

    def hold(self, command: Submit) -> None:
        """It names a job whose birth is not folded yet: whether that counts is still to be seen."""
        if command.receipt is not None:
            self._held.setdefault(command.job_id, []).append(command)

    def born(self, job_id: str, born_by: SubmissionNumber | None) -> None:
        """A birth was folded."""
        for command in self._held.pop(job_id, ()):
            self.say_same(command, born_by)

    def not_born(self, job_id: str) -> None:
        """There will be none."""
        for command in self._held.pop(job_id, ()):
            self.say(command, "refused")

    def take(self) -> list[SubmissionAnswered]:
        """What was said since the last call."""
        said, self._said = self._said, []
        return said
