"""What is due, in a round's two phases: what must be fetched for it, then what is decided (docs/architecture.md)."""

from aetheris.ledger.core import settlement, votes
from aetheris.ledger.core.adjudication import adjudicate, again, is_closed, wait_goes_on
from aetheris.ledger.core.approvals import expired, is_past
from aetheris.ledger.core.decisions import Decision, Facts, Now, ToFetch
from aetheris.ledger.core.doubt import doubt
from aetheris.ledger.core.due_times import DueTimes
from aetheris.ledger.core.live_jobs import (
    CurrentInvocation,
    LiveJob,
    LiveJobs,
    Pending,
    Reopened,
    TimedDecision,
    Waiting,
)
from aetheris.ledger.core.node_requests import NodeRequests
from aetheris.ledger.core.offers import Offers
from aetheris.ledger.core.placement import CallPlacement
from aetheris.ledger.core.settlement import JobKey
from aetheris.ledger.core.timer_queue import Item
from aetheris.ledger.core.tool_failures import ToolFailures
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.planning.invocation import NotReady, blobs_needed


class Judgement:
    """Of one partition: what was due at the last `to_fetch` is what the next `decided` judges."""

    def __init__(
        self,
        live_jobs: LiveJobs,
        due: DueTimes,
        requests: NodeRequests,
        *,
        offers: Offers,
        failures: ToolFailures,
        placement: CallPlacement,
    ) -> None:
        self._live_jobs = live_jobs
        self._due = due
        self._requests = requests
        self._offers = offers
        self._failures = failures
        self._placement = placement
        self._open: list[Item] = []
        self._guarded: dict[str, dict[Item, None]] = {}
        """Scope → the nodes that look at its lines."""

    def contents_changed(self, scope: str, now: Now) -> bool:
        """A line of calls that mean the same has changed; whether one here waits for that."""
        waiting = self._guarded.pop(scope, {})
        for item in waiting:
            job = self._live_jobs.jobs.get(item.job_id)
            if job is not None:
                self._due.hurry(job, item.name, now)
        return bool(waiting)

    def to_fetch(self, now: Now) -> ToFetch:
        """Take up what is due; what must be known of the stores to judge it."""
        wanted = ToFetch()
        self._open = self._due.take(now.mono_s)
        for item in self._open:
            job = self._live_jobs.jobs[item.job_id]
            if item.what == "node":
                _fetch_blobs(job, item.name, wanted)
            elif item.what == "key":
                _fetch_for_key(job, item, wanted)
        return wanted

    def decided(self, facts: Facts, now: Now) -> list[Decision]:
        """What becomes of what is due, by what was fetched."""
        decided: list[Decision] = []
        for item in self._open:
            decided += self._judge(item, facts, now)
        self._open = []
        return decided

    def _judge(self, item: Item, facts: Facts, now: Now) -> list[Decision]:
        job = self._live_jobs.jobs.get(item.job_id)
        if job is None or job.state.needs_upgrade:
            return []
        try:
            return list(self._step(job, item, facts, now).decisions)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self._live_jobs.unjudged.note(job.state, error)
            return []

    def _step(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> TimedDecision:
        match item.what:
            case "node":
                return self._judge_node(job, item, facts, now)
            case "key":
                return self._judge_key(job, item, facts, now)
            case "request":
                return self._judge_request(job, item, now)

    def _judge_node(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> TimedDecision:
        pending = job.pending.get(item.name)
        if pending is None:
            return TimedDecision()
        self._offers.miss(pending, now)
        step = adjudicate(job, item.name, pending, context=self._live_jobs.context, facts=facts, now=now)
        step = self._let_out(job, pending, item, step, now)
        if step.due_s is None:
            self._requests.discharge(job, item.name)
            return step
        self._due.put_off(pending, step.due_s, item)
        if pending.scope is not None:
            self._guarded.setdefault(pending.scope, {})[item] = None
        return step

    def _judge_key(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> TimedDecision:
        held = job.keys.get(item.name)
        if held is None:
            return TimedDecision()
        job_key, context = JobKey(job.state, item.name, job.state.keys[item.name]), self._live_jobs.context
        if isinstance(held, CurrentInvocation):
            step = doubt(job_key, held, context, facts, now.mono_s, takeovers=_takeovers(job, job_key.state.node_id))
        elif isinstance(held, Waiting):
            step = wait_goes_on(job_key, held, context, now)
        else:
            self._offers.miss(held, now)
            step = self._let_out(job, held, item, again(job, job_key, held, context=context, facts=facts, now=now), now)
        self._due.put_off(held, step.due_s if step.due_s is not None else float("inf"), item)
        return step

    def _let_out(
        self, job: LiveJob, held: Pending | Reopened, item: Item, step: TimedDecision, now: Now
    ) -> TimedDecision:
        """A grant, as far as its tool is served and may be called, and for whom."""
        placed = self._placement.place(job, held, item, step, now)
        return self._offers.offer(job, held, self._failures.sift(job, held, item, placed, now))

    def _judge_request(self, job: LiveJob, item: Item, now: Now) -> TimedDecision:
        """Nobody has answered in time, or nobody has to any more."""
        job_key, asked = JobKey(job.state, item.name, job.state.keys[item.name]), job.asked.get(item.name)
        if job_key.state.requested is None or asked is None or job.state.terminal is not None:
            return TimedDecision()
        closed = is_closed(job.state, job.state.entry(job_key.state.node_id))
        if closed or asked.superseded:
            del job.asked[item.name]
            if job_key.state.status is KeyStatus.REOPENED:  # what was tried ends as such
                return TimedDecision()
            why = "the job is stopping" if closed else "the plan has changed"
            return TimedDecision((settlement.rejected(job_key, RejectReason.CANCELLED, why),))
        agreed = votes.tallied(job_key, self._live_jobs.context, now)
        if agreed is not None:
            del job.asked[item.name]
            return TimedDecision((agreed,))
        if not is_past(job_key.state.requested, now):
            self._due.put_off(asked, now.due_at(job_key.state.requested.expires_at), item)
            return TimedDecision()
        del job.asked[item.name]
        return TimedDecision((expired(job_key, job_key.state.requested),))


def _takeovers(job: LiveJob, node_id: str) -> int | None:
    """How often a body has started since one of its calls settled; None of what is no body."""
    bodies = job.state.bodies
    return job.takeovers.get(node_id, 0) if bodies is not None and node_id in bodies.of else None


def _fetch_blobs(job: LiveJob, node_id: str, wanted: ToFetch) -> None:
    entry = job.state.entry(node_id)
    if entry is None or not entry.node.args:
        return
    try:
        wanted.blobs.update((ref.sha256, ref.size) for ref in blobs_needed(job.state, entry))
    except NotReady:
        return


def _fetch_for_key(job: LiveJob, item: Item, wanted: ToFetch) -> None:
    state, held = job.state.keys[item.name], job.keys[item.name]
    if (state.needs_yes and state.requested is None) or (isinstance(held, Reopened) and not state.unresolved):
        _fetch_blobs(job, state.node_id, wanted)
    if state.unresolved:
        wanted.effects.append((item.job_id, item.name))
    if isinstance(held, CurrentInvocation) and held.cause is None:
        wanted.leases.append(item.name)
