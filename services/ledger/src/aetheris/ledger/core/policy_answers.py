"""A partition's barrier of a policy, and its answer to who activated it (docs/policy.md)."""

from aetheris.ledger.core.decisions import Barrier, Now, PolicyTaken
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJobs
from aetheris.protocol.messages.commands import PolicyAnswer, PolicyBarrier


class PolicyAnswers:
    """Of one partition."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._is_open = False
        """Whether the barrier of the policy in force is not read yet, and its answer owed."""
        self._is_unsaid = False
        self._is_passed = False

    def activated(self, now: Now) -> None:
        """Another policy decides: what waited for one is judged, and who activated it is to be told."""
        self._is_open, self._is_unsaid, self._is_passed = True, True, False
        self._go_on(now)

    def passed(self, barrier: PolicyBarrier) -> None:
        """A barrier of this partition was folded."""
        context = self._live_jobs.context
        if barrier.number > context.policies.number:
            context.barriers.hear(barrier.number)
        elif self._is_open and barrier.number == context.policies.number:
            self._is_open, self._is_unsaid, self._is_passed = False, False, True

    def known(self, heard: int, now: Now) -> bool:
        """All that was activated when so many were unknown was read: they hold no more; whether they were forged."""
        context = self._live_jobs.context
        is_forged = context.barriers.number > context.policies.number
        if not context.barriers.known(heard):
            return False
        self._go_on(now)
        return is_forged

    def _go_on(self, now: Now) -> None:
        for job in self._live_jobs.jobs.awake():
            self._due.go_on(job, now)

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        policies = self._live_jobs.context.policies
        is_owed = self._is_unsaid or self._is_passed
        return is_owed and self._live_jobs.is_restored and policies.unusable is None

    def decided(self) -> list[Barrier | PolicyTaken]:
        """The barrier, and when it was read the answer, each once; none while the policy can't be used."""
        if not self.is_due:
            return []
        number = self._live_jobs.context.policies.number
        if self._is_unsaid:
            self._is_unsaid = False
            return [Barrier(PolicyBarrier(number=number))]
        self._is_passed = False
        return [PolicyTaken(PolicyAnswer(number=number, partition=self._live_jobs.number))]
