"""A partition's answer to who activated a policy: what it decides behind that goes by it (docs/policy.md)."""

from aetheris.ledger.core.decisions import Now, PolicyTaken
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.protocol.messages.commands import PolicyAnswer


class PolicyAnswers:
    """Of one partition."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._is_owed = False

    def activated(self, now: Now) -> None:
        """Another policy decides: what waited for one is judged, and who activated it is to be told."""
        self._is_owed = True
        for job in self._live_jobs.jobs.values():
            self._due.go_on(job, now)

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        policies = self._live_jobs.context.policies
        return self._is_owed and self._live_jobs.is_restored and policies.unusable is None

    def decided(self) -> list[PolicyTaken]:
        """The answer, once; none while the policy can't be used."""
        if not self.is_due:
            return []
        self._is_owed = False
        number = self._live_jobs.context.policies.number
        return [PolicyTaken(PolicyAnswer(number=number, partition=self._live_jobs.number))]
