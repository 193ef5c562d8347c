"""What people have frozen: no grants for it, the freeze in every job concerned, then the partition's barrier.

Nothing rests on who writes here: jobs carry the freeze, and a partition its barrier, in log order (docs/freeze.md).
"""

from collections.abc import Iterator, Sequence, Set

from aetheris.ledger.core.decisions import Answered, Barrier, Decision, Emit, Now
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import JobAtRest, LiveJob, LiveJobs, submitter_of
from aetheris.ledger.core.settlement import written
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.start import tools_held
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ActingCall, FreezeAnswer, FreezeBarrier, FreezeOrder

MOST_NAMED = 200
"""Calls that an answer names; of others it says how many there are."""

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
        self._lacking: set[str] = set()
        """Jobs that lacked it when they were looked at last: it is on its way."""
        self._said: dict[str, dict[FreezeScope, Said]] = {}
        """What this process has appended to a job last."""
        self._open: dict[FreezeScope, FreezeOrder] = {}
        """Orders whose barrier this process has not folded."""
        self._unsaid: dict[FreezeScope, FreezeOrder] = {}
        """Those whose barrier it has not appended either."""
        self._barriers: dict[FreezeScope, Said] = {}
        """The barrier that this process has appended last."""
        self._answers: list[FreezeAnswer] = []
        self._unknown: dict[Numbered, dict[str, None]] = {}
        """Freezes whose order this process has not read, each with the jobs that carry it."""
        self._forged: dict[str, dict[FreezeScope, int]] = {}
        """By job: those that it carries and nobody had ordered when all was read that is ordered."""

    def take(self, order: FreezeOrder, now: Now) -> None:
        """An order counts that this partition has not answered."""
        self._open[order.scope] = order
        if self._barriers.get(order.scope) == said_by(order):
            self._unsaid.pop(order.scope, None)
        else:
            self._unsaid[order.scope] = order
        for one in self._live_jobs.jobs.survey():  # in the order of their births, whoever rests
            if isinstance(one, LiveJob):
                if order.scope.concerns(*submitter_of(one)):
                    self.look(one)
                    if not order.frozen:
                        self._due.go_on(one, now)
            elif (order.frozen or one.job_id in self._lacking) and order.scope.concerns(*one.submitter):
                self._looked_at[one.job_id] = None  # it carries none, and waits for no end of one

    def look(self, job: LiveJob) -> None:
        """A job is created, or its plan, its freezes or its end have changed: whether it carries what is ordered."""
        job_id = job.state.job_id
        if job.state.frozen or job_id in self._lacking or self._orders.in_force():
            self._looked_at[job_id] = None

    def changed(self, job: LiveJob, scope: FreezeScope) -> None:
        """A freeze of a job has begun, or is over: what was said before of that scope is said."""
        job_id, freeze = job.state.job_id, job.state.frozen.get(scope)
        self._said.get(job_id, {}).pop(scope, None)
        self._forged.get(job_id, {}).pop(scope, None)  # it may have been ordered since
        if freeze is not None and not self._orders.has(scope, freeze.number):
            self._unknown.setdefault((scope, freeze.number), {})[job_id] = None
        self.look(job)

    @property
    def unknown(self) -> Set[Numbered]:
        """Freezes of jobs whose order this process has not read."""
        return self._unknown.keys()

    def known(self, asked: Set[Numbered]) -> None:
        """All that was ordered before now is among the orders: what of `asked` is not, nobody has ordered."""
        for scope, number in asked:
            carrying = self._unknown.pop((scope, number), {})
            if not self._orders.has(scope, number):
                for job_id in carrying:
                    self._forged.setdefault(job_id, {})[scope] = number
                    self._looked_at[job_id] = None

    def look_at_rest(self, job: JobAtRest) -> None:
        """The same of one that rests, as history was read: it carries no freeze."""
        if any(order.scope.concerns(*job.submitter) for order in self._orders.in_force()):
            self._looked_at[job.job_id] = None

    def passed(self, barrier: FreezeBarrier) -> None:
        """A barrier of this partition was folded: what had started before it may still act."""
        order = barrier.order
        waiting = self._open.get(order.scope)
        if waiting is None or said_by(waiting) != said_by(order):
            return
        del self._open[order.scope]
        self._unsaid.pop(order.scope, None)
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
        self._forged.pop(job_id, None)
        self._lacking.discard(job_id)

    @property
    def is_due(self) -> bool:
        """Whether something is to be written now."""
        if not self._live_jobs.is_restored:
            return False
        return bool(self._looked_at or self._answers or (self._unsaid and not self._waits_for_jobs()))

    def decided(self) -> list[Decision]:
        """What jobs lack, then the barriers of what no job lacks, then the answers."""
        if not self._live_jobs.is_restored:
            return []
        answers, self._answers = self._answers, []
        return [*self._brought(), *self._raised(), *map(Answered, answers)]

    def _brought(self) -> Iterator[Emit]:
        looked_at, self._looked_at = self._looked_at, {}
        for job_id in looked_at:
            self._lacking.discard(job_id)
            job = self._live_jobs.jobs.peek(job_id)
            if job is None or _is_out_of_reach(job.state):
                continue
            for event in self._differences(job.state):
                self._lacking.add(job_id)
                known = self._said.setdefault(job_id, {})
                said = (event.number, isinstance(event, ev.JobFrozen))
                if known.get(event.scope) != said:  # else it is on its way
                    known[event.scope] = said
                    yield Emit(job_id, (written(event, event.scope.key, str(event.number)),))

    def _waits_for_jobs(self) -> bool:
        """Whether a job does not carry yet what is ordered; for one that was set aside meanwhile nothing waits."""
        jobs = self._live_jobs.jobs
        self._lacking = {one for one in self._lacking if one in jobs and not _is_out_of_reach(jobs[one].state)}
        return bool(self._lacking)

    def _raised(self) -> Iterator[Barrier]:
        if not self._unsaid or self._waits_for_jobs():
            return
        unsaid, self._unsaid = self._unsaid, {}
        for order in unsaid.values():
            self._barriers[order.scope] = said_by(order)
            yield Barrier(FreezeBarrier(order=order))

    def _differences(self, job: JobState) -> Iterator[ev.JobFrozen | ev.JobUnfrozen]:
        """What makes a job's freezes those that are ordered."""
        created, forged = job.created, self._forged.get(job.job_id, {})
        for scope, freeze in job.frozen.items():
            last = self._orders.last(scope.key)
            if last is not None and not last.frozen and last.number >= freeze.number:
                yield ev.JobUnfrozen(
                    job_id=job.job_id, scope=scope, number=freeze.number, by=last.by, at=last.at, reason=last.reason
                )
            elif forged.get(scope) == freeze.number and not self._orders.has(scope, freeze.number):
                yield _taken_back(job.job_id, freeze, last)
        if not self._orders.in_force():
            return
        tools = dict.fromkeys(entries[-1].node.tool for entries in job.entries.values())
        for order in self._orders.holding(created.tenant, created.submitted_by, tools):
            if job.freezes.get(order.scope, 0) < order.number:
                yield ev.JobFrozen(
                    job_id=job.job_id,
                    scope=order.scope,
                    number=order.number,
                    by=order.by,
                    at=order.at,
                    reason=order.reason,
                )

    def _acting(self, order: FreezeOrder) -> Iterator[ActingCall]:
        for job in self._live_jobs.jobs.awake():
            created, job_id = job.state.created, job.state.job_id
            for key, state in job.state.keys.items():
                started = state.started
                if started is None or not state.may_act:
                    continue
                tools = _tools(job.state, started)
                if any(order.scope.holds(created.tenant, created.submitted_by, one) for one in tools):
                    execution = execution_id(job_id, state.node_id, key)
                    yield ActingCall(
                        job_id=job_id, node_id=state.node_id, tool=started.tool_name, execution_id=execution
                    )


def _tools(job: JobState, started: ev.ToolInvocationStarted) -> Sequence[str | None]:
    entry = job.entry(started.node_id)
    return (started.tool_name, *(tools_held(job, entry) if entry is not None else ()))


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


def _is_out_of_reach(job: JobState) -> bool:
    """Nothing of it starts any more, or not before an upgrade."""
    return job.terminal is not None or job.sealed or job.needs_upgrade


def said_by(order: FreezeOrder) -> Said:
    """What an order is about."""
    return order.number, order.frozen
