"""What people have frozen: no grants for it, the freeze in every job concerned, then the partition's barrier.

Nothing rests on who writes here: jobs carry the freeze, and a partition its barrier, in log order (docs/freeze.md).
"""

from collections.abc import Iterator, Set

from aetheris.ledger.core.decisions import Answered, Barrier, Decision, Emit, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import LiveJob, LiveJobs
from aetheris.ledger.core.settlement import written
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import JobState, KeyState, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ActingCall, FreezeAnswer, FreezeBarrier, FreezeOrder

MOST_NAMED = 200
"""Calls that an answer names; of others it says how many there are."""

MOST_FORGED = 1_000
"""Freezes that nobody ordered which are remembered, the newest."""

Said = tuple[int, bool]
"""The number of a freeze, and whether it begins."""
Numbered = tuple[FreezeScope, int]


class Freezes:
    """Of one partition; what is ordered is as far as this process has read it."""

    def __init__(self, live_jobs: LiveJobs, due: DueTimes) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._orders = live_jobs.context.freezes
        self._looked_at: dict[str, None] = {}
        """Jobs that may lack what is ordered."""
        self._said: dict[str, dict[FreezeScope, Said]] = {}
        """What this process has appended to a job last."""
        self._unmarked: dict[FreezeScope, FreezeOrder] = {}
        """Orders whose barrier this process has not folded."""
        self._barred: dict[FreezeScope, Said] = {}
        """The barrier that this process has appended last."""
        self._answers: list[FreezeAnswer] = []
        self.unknown: set[Numbered] = set()
        """Freezes of jobs whose order this process has not read."""
        self._forged: dict[Numbered, None] = {}
        """Those that nobody had ordered when it had read all that is ordered."""

    def take(self, order: FreezeOrder, now: Now) -> None:
        """An order counts that this partition has not answered."""
        self._unmarked[order.scope] = order
        for job in self._live_jobs.jobs.values():
            if order.scope.concerns(job.state.created.tenant, job.state.created.submitted_by):
                self.look(job)
                if not order.frozen:
                    self._due.go_on(job, now)

    def look(self, job: LiveJob) -> None:
        """A job is created, or its plan or its freezes have changed: whether it carries what is ordered."""
        if job.state.frozen or self._orders.in_force():
            self._looked_at[job.state.job_id] = None
        for scope, freeze in job.state.frozen.items():
            if not self._orders.has(scope, freeze.number) and (scope, freeze.number) not in self._forged:
                self.unknown.add((scope, freeze.number))

    def changed(self, job: LiveJob, scope: FreezeScope) -> None:
        """A freeze of a job has begun, or is over: what was said before of that scope is said."""
        self._said.get(job.state.job_id, {}).pop(scope, None)
        freeze = job.state.frozen.get(scope)
        if freeze is not None:
            self._forged.pop((scope, freeze.number), None)  # it may have been ordered since
        self.look(job)

    def known(self, asked: Set[Numbered]) -> None:
        """All that was ordered before now is among the orders: what of `asked` is not, nobody has ordered."""
        self.unknown -= asked
        self._forged |= dict.fromkeys(one for one in asked if not self._orders.has(*one))
        while len(self._forged) > MOST_FORGED:
            del self._forged[next(iter(self._forged))]
        for job in self._live_jobs.jobs.values():
            if any((scope, freeze.number) in self._forged for scope, freeze in job.state.frozen.items()):
                self._looked_at[job.state.job_id] = None

    def look_at_all(self) -> None:
        """History was read."""
        for job in self._live_jobs.jobs.values():
            self.look(job)

    def passed(self, barrier: FreezeBarrier) -> None:
        """A barrier of this partition was folded: what had started before it may still act."""
        order = barrier.order
        waiting = self._unmarked.get(order.scope)
        if waiting is None or said_by(waiting) != said_by(order):
            return
        del self._unmarked[order.scope]
        acting = list(self._acting(order)) if order.frozen else []
        answer = FreezeAnswer(
            scope=order.scope,
            number=order.number,
            frozen=order.frozen,
            partition=self._live_jobs.number,
            acting=tuple(acting[:MOST_NAMED]),
            more=max(0, len(acting) - MOST_NAMED),
        )
        self._answers.append(answer)

    def forget(self, job_id: str) -> None:
        """A job is sealed."""
        self._said.pop(job_id, None)

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        if not self._live_jobs.is_restored:
            return False
        return bool(self._looked_at or self._answers or (self._unsaid_marks() and not self._waits_for_jobs()))

    def decided(self) -> list[Decision]:
        """What jobs lack, then the barriers of what no job lacks, then the answers."""
        if not self._live_jobs.is_restored:
            return []
        answers, self._answers = self._answers, []
        return [*self._lacking(), *self._barriers(), *map(Answered, answers)]

    def _lacking(self) -> Iterator[Emit]:
        looked_at, self._looked_at = self._looked_at, {}
        for job_id in looked_at:
            job = self._live_jobs.jobs.get(job_id)
            if job is None or _is_out_of_reach(job.state):
                continue
            known = self._said.setdefault(job_id, {})
            for event in self._differences(job.state):
                said = (event.number, isinstance(event, ev.JobFrozen))
                if known.get(event.scope) != said:  # else it is on its way
                    known[event.scope] = said
                    yield Emit(job_id, (written(event, event.scope.key, str(event.number)),))

    def _waits_for_jobs(self) -> bool:
        """Whether a job does not carry yet what is ordered."""
        return any(
            next(self._differences(job.state), None) is not None
            for job in self._live_jobs.jobs.values()
            if not _is_out_of_reach(job.state)
        )

    def _unsaid_marks(self) -> list[FreezeOrder]:
        return [order for scope, order in self._unmarked.items() if self._barred.get(scope) != said_by(order)]

    def _barriers(self) -> Iterator[Barrier]:
        unsaid = self._unsaid_marks()
        if not unsaid or self._waits_for_jobs():
            return
        for order in unsaid:
            self._barred[order.scope] = said_by(order)
            yield Barrier(FreezeBarrier(order=order))

    def _differences(self, job: JobState) -> Iterator[ev.JobFrozen | ev.JobUnfrozen]:
        """What makes a job's freezes those that are ordered."""
        for scope, freeze in job.frozen.items():
            last = self._orders.last(scope.key)
            if last is not None and not last.frozen and last.number >= freeze.number:
                yield ev.JobUnfrozen(
                    job_id=job.job_id, scope=scope, number=freeze.number, by=last.by, at=last.at, reason=last.reason
                )
            elif (scope, freeze.number) in self._forged and not self._orders.has(scope, freeze.number):
                yield _taken_back(job.job_id, freeze, last)
        for order in self._orders.in_force():
            if _calls(order.scope, job) and job.freezes.get(order.scope, 0) < order.number:
                yield ev.JobFrozen(
                    job_id=job.job_id,
                    scope=order.scope,
                    number=order.number,
                    by=order.by,
                    at=order.at,
                    reason=order.reason,
                )

    def _acting(self, order: FreezeOrder) -> Iterator[ActingCall]:
        for job in self._live_jobs.jobs.values():
            created, job_id = job.state.created, job.state.job_id
            for key, state in job.state.keys.items():
                started = state.started
                if started is None or not _may_act(state):
                    continue
                if order.scope.holds(created.tenant, created.submitted_by, started.tool_name):
                    execution = execution_id(job_id, state.node_id, key)
                    yield ActingCall(
                        job_id=job_id, node_id=state.node_id, tool=started.tool_name, execution_id=execution
                    )


def _may_act(state: KeyState) -> bool:
    """Whether a try of it has neither come back nor been proved unexecuted, however the call was settled meanwhile."""
    if state.outcome is Settled.SUCCESS:
        return bool(state.unresolved - {state.settled_by})
    return bool(state.unresolved) and not (state.outcome is Settled.FAILED and state.sure)


def _taken_back(job_id: str, freeze: ev.JobFrozen, last: FreezeOrder | None) -> ev.JobUnfrozen:
    """The end of a freeze that nobody ordered; one that is ordered, with the number behind the last, counts then."""
    over = 0 if last is None else last.number - last.frozen
    return ev.JobUnfrozen(
        job_id=job_id,
        scope=freeze.scope,
        number=freeze.number,
        by="ledger",
        at=freeze.at,
        reason="nobody has ordered it",
        ordered=over,
    )


def _calls(scope: FreezeScope, job: JobState) -> bool:
    """Whether a job has calls that are held: of a frozen tool, one that its plan in force has."""
    if not scope.concerns(job.created.tenant, job.created.submitted_by):
        return False
    return scope.tool is None or any(entries[-1].node.tool == scope.tool for entries in job.entries.values())


def _is_out_of_reach(job: JobState) -> bool:
    """Nothing of it starts any more, or not before an upgrade."""
    return job.terminal is not None or job.sealed or job.needs_upgrade


def said_by(order: FreezeOrder) -> Said:
    """What an order is about."""
    return order.number, order.frozen
