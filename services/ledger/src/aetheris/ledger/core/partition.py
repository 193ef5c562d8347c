"""One partition of the ledger: folds its jobs, keeps what is open, decides (docs/guarantees.md); pure."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from aetheris.ledger.core import confirming, settlement, waits
from aetheris.ledger.core.adjudication import adjudicate, again, is_closed, pause_s, wait_goes_on
from aetheris.ledger.core.agenda import Agenda, Item
from aetheris.ledger.core.approvals import answer, expired, is_past
from aetheris.ledger.core.contents import released, settled
from aetheris.ledger.core.decisions import Decision, Emit, Facts, Grant, Line, Look, Now, View
from aetheris.ledger.core.doubt import LEASE_EXPIRED, WORKER_ENDED, ask_anew, doubt, is_reported, note_unknown
from aetheris.ledger.core.memory import (
    Asked,
    LiveJob,
    Offered,
    Pending,
    Reopened,
    Started,
    Step,
    Terms,
    Waiting,
    WorkerLife,
)
from aetheris.ledger.core.presence import Presence
from aetheris.ledger.core.quarantine import Quarantine, Tool, tells_about_tool
from aetheris.ledger.core.records import record_of
from aetheris.ledger.core.settlement import Key
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.sealed import SealedNames, UnreadBirths
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.start import is_stopped
from aetheris.protocol.fold.state import NODE_WAITS, Settled, St, birth
from aetheris.protocol.fold.unjudged import Unjudged
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    CancelContract,
    Ended,
    Resolve,
    Respond,
    Signal,
    StepCommand,
    ToolRequest,
)
from aetheris.protocol.messages.events import Answer, Event, RejectReason
from aetheris.protocol.messages.events import Decision as Said
from aetheris.protocol.plan.graph import Retry
from aetheris.protocol.planning.approvals import may_not_resolve, request_id
from aetheris.protocol.planning.invocation import NotReady, blobs_needed

VIEWS_AFTER_RESTART = 10_000
"""Settlements of the history's end whose lines in ledger.records are written again: a crash may have lost them."""


_PLAIN = frozenset({ev.ToolInvocationStarted, ev.ToolInvocationFinished})
"""What a step that goes well writes: it moves its key, and nothing else follows."""


@dataclass(slots=True)
class _Ahead:
    """A request that the fold has not caught up with."""

    request: ToolRequest
    parent: bytes | None


@dataclass(frozen=True, slots=True)
class _Word:
    """What was said from outside about a step, and is not decided yet."""

    command: StepCommand
    id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Unheard:
    """A person's word that decides nothing, past the gateway, which refuses such words; what is open stays open."""

    job_id: str
    command_id: str
    why: str


class Partition:
    """Jobs are kept in the order of their births; `ended` is everything known of ended workers, with how."""

    def __init__(self, terms: Terms, ended: Mapping[WorkerLife, Ended]) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.folded = -1
        self._terms = terms
        self._ended = ended
        self._live = False
        self._agenda = Agenda(self._due_of)
        self._open: list[Item] = []
        self._ahead: list[tuple[int, int, _Ahead]] = []
        self._requests: dict[int, None] = {}
        self._words: list[_Word] = []
        self._announcements: dict[tuple[str, WorkerLife], None] = {}
        self._found: list[tuple[str, ev.InvocationProbed]] = []
        self._given_up: dict[tuple[str, str], None] = {}
        self._settled: deque[tuple[LiveJob, str, int]] = deque()
        self._over: list[LiveJob] = []
        """Jobs that have ended since the last `decide`."""
        self._guarded: dict[str, dict[Item, None]] = {}
        """Scope → the nodes that look at its lines."""
        self._joined: list[tuple[str, str]] = []
        self._forgotten = SealedNames()
        self._unread = UnreadBirths()
        self.unjudged = Unjudged()
        self._presence = Presence(ended)
        self.quarantine = Quarantine(terms.limits.quarantine)
        """Which tools' calls wait, as found by the failures that this process has folded since it was restored."""
        self._left: list[WorkerLife] = []
        self._restored_at = -1
        self.contradictions: list[ev.ToolInvocationFinished] = []
        """Successes that came after their key was settled otherwise, for an operator to hear of."""
        self.unheard: list[Unheard] = []
        """For an operator to hear of as well."""

    # reading

    def pass_over(self, offset: int) -> None:
        """A record that says nothing here was read."""
        self.folded = offset

    def needs_upgrade(self, job_id: str, offset: int, *, is_birth: bool = False) -> None:
        """A record of the job that this version can't read: nothing more is decided about it."""
        self.folded = offset
        job = self.jobs.get(job_id)
        if job is not None:
            job.state.needs_upgrade = True
        elif is_birth and job_id not in self._forgotten:
            self._unread.add(job_id, offset)

    def evolve(self, event: Event, offset: int, now: Now, at_s: float = 0.0) -> None:
        """Fold one event, appended at `at_s` (seconds since 1970); what it makes due the next `decide` decides."""
        self.folded = offset
        job = self.jobs.get(event.job_id)
        if job is None:
            self._take_in(event, offset)
            return
        try:
            self._follow(job, event, offset, now=now, at_s=at_s)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(job.state, error)

    def _follow(self, job: LiveJob, event: Event, offset: int, *, now: Now, at_s: float) -> None:
        keys = job.state.keys
        key = event.idempotency_key if isinstance(event, ev.KeyEvent) else None
        known = keys.get(key) if key is not None else None
        before = known.st if known is not None else St.NONE
        if not apply(job.state, event, offset):
            return
        if key is not None and (known or keys[key]).st is not before:
            self._moved(job, key, before, event, offset=offset, now=now)
            if self._live and isinstance(event, ev.ToolInvocationFinished):
                self._judge_tool(job, event, now)
        elif before is St.SETTLED and isinstance(event, ev.ToolInvocationFinished):
            self.contradictions.append(event)
        if type(event) not in _PLAIN:
            self._react(job, event, now, at_s)

    def confirm(self, answer: ev.EffectConfirmed | ev.ConfirmationFailed, offset: int, now: Now) -> None:
        """Take what the outside says of a recorded effect; what waits for it is looked at again."""
        self.folded = offset
        job = self.jobs.get(answer.job_id)
        if job is not None and confirming.hear(job, answer, self._terms, now):
            self._hurry_all(job, now)

    def nothing_changed(self, job_id: str, key: str, now: Now) -> None:
        """A call that was to be confirmed has recorded no change."""
        job = self.jobs.get(job_id)
        if job is not None:
            confirming.nothing_changed(job, key)
            self._hurry_all(job, now)

    def request(self, request: ToolRequest, offset: int, parent: bytes | None = None) -> None:
        """Take a request up; it is judged when the fold has come to where its writer was."""
        self._requests[offset] = None
        heapq.heappush(self._ahead, (max(request.as_of, request.birth), offset, _Ahead(request, parent)))

    def hear(self, command: StepCommand, command_id: str, offset: int) -> None:
        """Take a word from outside up; it is decided when the fold has come to where the gateway was."""
        self._words.append(_Word(command, command_id, offset))

    def contents_changed(self, scope: str, now: Now) -> bool:
        """A line of calls that mean the same has changed; whether one here waits for that."""
        waiting = self._guarded.pop(scope, {})
        for item in waiting:
            job = self.jobs.get(item.job_id)
            if job is not None:
                self._hurry(job, item.name, now)
        return bool(waiting)

    def worker_ended(self, life: WorkerLife) -> bool:
        """The workers table says that a worker has ended; whether a job here is concerned."""
        for job in self.jobs.values():
            if any(isinstance(tried, Started) and tried.life == life for tried in job.keys.values()):
                self._announce(job, life)
        if life == self._presence.serving:
            self._left.append(life)
        return bool(self._announcements or self._left)

    def restored(self, now: Now) -> None:
        """History was read: every lease gets a full TTL before it is missed."""
        self._live, self._restored_at = True, self.folded
        if self._presence.restored():
            self._doubt_the_world()
        for job_id, job in self.jobs.items():
            self._give_up(job)
            confirming.taken_up(job, self.folded, self._terms, self._ended)
            for key, held in job.keys.items():
                if isinstance(held, Started):
                    self._resume(job, held, now)
                self._put(held.due_s, Item("key", job_id, key))
            for node_id, pending in job.pending.items():
                self._agenda.put(pending.due_s, Item("node", job_id, node_id))
            for key, asked in job.asked.items():
                self._put(asked.due_s, Item("request", job_id, key))

    # deciding

    @property
    def waits_for_fold(self) -> bool:
        """Whether something is here that the fold has not caught up with."""
        return bool(self._ahead) or any(held.command.as_of > self.folded for held in self._words)

    def next_due(self) -> float | None:
        """When `decide` is next called for by the clock alone."""
        if self._found or self._announcements or self._settled or self._over or self._given_up or self._left:
            return float("-inf")
        return self._agenda.next_due()

    def look(self, now: Now) -> Look:
        """Take up what is due; what must be known of the stores before `decide`."""
        while self._ahead and self._ahead[0][0] <= self.folded:
            _, offset, ahead = heapq.heappop(self._ahead)
            self._admit(ahead, offset, now)
        self._let_go(now)
        look = Look()
        self._open = self._agenda.take(now.mono_s)
        for item in self._open:
            job = self.jobs[item.job_id]
            if item.what == "node":
                _look_for_blobs(job, item.name, look)
            elif item.what == "key":
                _look_for_key(job, item, look)
        return look

    def decide(self, facts: Facts, now: Now) -> list[Decision]:
        """Everything that is decided now, in the order in which it is to be carried out."""
        decisions = self._announced()
        decisions += self._heard(now)
        decisions += self._settled_by_probe()
        decisions += self._cancelled()
        for item in self._open:
            decisions += self._judge(item, facts, now)
        self._open = []
        decisions += self._views(now)
        return decisions

    def joined(self) -> list[tuple[str, str]]:
        """Job and key of what started as later nodes of a run, since the last call."""
        joined, self._joined = self._joined, []
        return joined

    # offsets

    def live(self) -> Iterator[tuple[str, int]]:
        """The live jobs, each with its birth."""
        yield from ((job_id, job.state.birth) for job_id, job in self.jobs.items())
        yield from self._unread.items()

    def open_request(self) -> int | None:
        """The offset of the oldest request that is not discharged."""
        return min(self._requests, default=None)

    def open_command(self) -> int | None:
        """The offset of the oldest command that waits."""
        return min((held.offset for held in self._words), default=None)

    # what events change

    def _take_in(self, event: Event, offset: int) -> None:
        if isinstance(event, ev.JobCreated) and not (event.job_id in self._forgotten or event.job_id in self._unread):
            self.jobs[event.job_id] = LiveJob(birth(event, offset))
        elif isinstance(event, ev.JobSealed):
            self._unread.pop(event.job_id)

    def _react(self, job: LiveJob, event: Event, now: Now, at_s: float) -> None:
        match event:
            case ev.WorkerEnded():
                self._end_worker(job, (event.worker_id, event.incarnation), now)
            case ev.InvocationInDoubt():
                self._doubt(job, event, now)
            case ev.InvocationProbed():
                self._take_answer(job, event, now)
            case ev.RetryScheduled():
                self._schedule(job, event, now)
            case ev.PolicyAllowed():
                self._charge(job, event, at_s)
                self._hurry(job, event.node_id, now)
            case ev.ApprovalRequested():
                self._charge(job, event, at_s)
                self._wait_for_human(job, event, now)
            case ev.ApprovalDecided():
                self._take_decision(job, event, now)
            case ev.JobWaiting():
                self._begin_wait(job, event, now)
            case ev.InvocationCancelRequested():
                free = job.keys.get(event.idempotency_key)
                if isinstance(free, Reopened):
                    self._put_off(free, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))
            case ev.WaitCompleted():
                self._end_wait(job, event, now)
            case ev.SignalReceived():
                self._hurry_wait(job, event.correlation_key, now)
            case ev.JobResumed():
                confirming.resumed(job, self.folded, self._terms)
                self._go_on(job, now)
            case ev.CancelRequested():
                self._give_up(job)
                self._go_on(job, now)
            case ev.JobCompleted() | ev.JobFailed() | ev.JobCancelled():
                self._over.append(job)
                self._change_course(job, now)
            case ev.JobStopping() | ev.PlanGenerated():
                self._change_course(job, now)
            case ev.JobSealed() | ev.BirthRepeated():
                self._forget(job)
            case _:
                pass

    def _moved(self, job: LiveJob, key: str, before: St, event: Event, *, offset: int, now: Now) -> None:
        """A key went from one state to another."""
        state = job.state.keys[key]
        over = job.keys.pop(key, None)
        if isinstance(over, Waiting):
            job.awaited.pop(over.event.correlation_key or "", None)
        if before is St.PARKED:
            confirming.resumed(job, offset, self._terms)
            job.parked.pop(execution_id(job.state.job_id, state.node_id, key), None)
        if isinstance(event, ev.ToolInvocationStarted):
            self._discharge(job, state.node_id)
            if event.after and self._live:
                self._joined.append((job.state.job_id, key))
            self._begin(job, key, event, now)
        elif state.st is St.REOPENED:
            after_proof = isinstance(event, ev.ToolInvocationFinished)
            paced = isinstance(event, ev.InvocationReopened) and event.by == "policy" and is_reported(state)
            job.keys[key] = Reopened(now.mono_s, after_proof, paced)
            self._put(now.mono_s, Item("key", job.state.job_id, key))
        elif state.st is St.PARKED:
            job.parked[execution_id(job.state.job_id, state.node_id, key)] = key
            if isinstance(over, Started):
                self._keep_parked(job, key, over, now)
            self._give_up(job)
        elif state.st is St.SETTLED:
            self._discharge(job, state.node_id)
            job.asked.pop(key, None)
            if state.outcome is not Settled.SUCCESS and state.sure:
                _give_back(job, key)
            self._settled.append((job, key, offset))
            if not self._live and len(self._settled) > VIEWS_AFTER_RESTART:
                self._settled.popleft()

    def _begin(self, job: LiveJob, key: str, event: ev.ToolInvocationStarted, now: Now) -> None:
        tried = Started(event.invocation_id, (event.worker_id, event.incarnation), 0.0)
        job.keys[key] = tried
        if self._presence.started(tried.life) and self._live:
            self._doubt_the_world()
        if tried.life in job.state.gone:
            self._worker_gone(tried, now)
        elif self._live and tried.life in self._ended:
            self._announce(job, tried.life)
        wait_s = self._terms.limits.lease_ttl_s if tried.cause is None else 0.0
        self._put_off(tried, now.mono_s + wait_s, Item("key", job.state.job_id, key))

    def _resume(self, job: LiveJob, tried: Started, now: Now) -> None:
        """A key that was started before this process folded it."""
        if tried.cause is None:
            tried.due_s = now.mono_s + self._terms.limits.lease_ttl_s
        if tried.life in self._ended:
            self._announce(job, tried.life)

    def _keep_parked(self, job: LiveJob, key: str, tried: Started, now: Now) -> None:
        """A human is asked; what becomes known of the try's end may still spare him."""
        tried.cause = tried.cause or LEASE_EXPIRED
        job.keys[key] = tried
        due_s = now.mono_s if tried.ended_s is not None else float("inf")
        self._put_off(tried, due_s, Item("key", job.state.job_id, key))

    def _worker_gone(self, tried: Started, now: Now) -> None:
        tried.ended_s = now.mono_s if tried.ended_s is None else tried.ended_s
        tried.cause = tried.cause or WORKER_ENDED

    def _announce(self, job: LiveJob, life: WorkerLife) -> None:
        if life not in job.announced and life not in job.state.ended_workers:
            job.announced.add(life)
            self._announcements[job.state.job_id, life] = None

    def _end_worker(self, job: LiveJob, life: WorkerLife, now: Now) -> None:
        """Who submitted the job gets no other try of it by saying so himself."""
        if life not in job.state.gone:
            return
        for key, tried in job.keys.items():
            if isinstance(tried, Started) and tried.life == life:
                self._worker_gone(tried, now)
                ask_anew(tried, job.state.keys[key])
                self._put_off(tried, now.mono_s, Item("key", job.state.job_id, key))

    def _doubt(self, job: LiveJob, event: ev.InvocationInDoubt, now: Now) -> None:
        tried = job.keys.get(event.idempotency_key)
        if not isinstance(tried, Started) or tried.nonce != event.invocation_id:
            return
        if event.returned and tried.ended_s is None:
            tried.ended_s, tried.returned = now.mono_s, True
            ask_anew(tried, job.state.keys[event.idempotency_key])
        elif tried.cause is not None:
            return
        if self._live:
            self._judge_tool(job, event, now)
        tried.cause = tried.cause or event.error_class
        self._put_off(tried, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))

    def _take_answer(self, job: LiveJob, event: ev.InvocationProbed, now: Now) -> None:
        if event.answer is Answer.FOUND:
            self._found.append((job.state.job_id, event))
            return
        tried = job.keys.get(event.idempotency_key)
        if not isinstance(tried, Started) or tried.ask is None or tried.ask[0] != event.ask:
            return  # asked by another process: this one's clock can't tell when
        if event.answer is Answer.NOT_FOUND:
            tried.absent_s, tried.ask, tried.unknowns = tried.ask[1], None, 0
        else:
            note_unknown(tried, self._terms, now.mono_s)
        self._put_off(tried, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))

    def _schedule(self, job: LiveJob, event: ev.RetryScheduled, now: Now) -> None:
        free = job.keys.get(event.idempotency_key)
        if isinstance(free, Reopened):
            self._try_again(job, event.idempotency_key, free, now)

    def _try_again(self, job: LiveJob, key: str, free: Reopened, now: Now) -> None:
        """At the time that is recorded, if one is."""
        state = job.state.keys[key]
        entry = job.state.entry(state.node_id)
        retry = entry.node.retry if entry is not None else None
        longest_s = pause_s(retry or Retry(), state.attempts)
        wait_s = min(_seconds_until(state.retry_due, now), longest_s)  # the writer's clock may have been wrong
        self._put_off(free, now.mono_s + wait_s, Item("key", job.state.job_id, key))

    def _go_on(self, job: LiveJob, now: Now) -> None:
        """A pause is over: what it held may start."""
        for node_id in job.pending:
            self._hurry(job, node_id, now)
        for key, free in job.keys.items():
            if isinstance(free, Reopened):
                self._try_again(job, key, free, now)

    def _charge(self, job: LiveJob, event: ev.PolicyAllowed | ev.ApprovalRequested, at_s: float) -> None:
        rule = self._terms.policy.limited.get(event.rule)
        if rule is not None and event.cost is not None:
            job.account(rule.name).take(rule, event.idempotency_key, event.cost, at_s)

    def _wait_for_human(self, job: LiveJob, event: ev.ApprovalRequested, now: Now) -> None:
        """The log waits from here on; the request's due time is in the event."""
        self._discharge(job, event.node_id)
        key, entry = event.idempotency_key, job.state.entry(event.node_id)
        if not job.state.keys[key].is_asking or entry is None:
            return
        due_s = now.mono_s + _seconds_until(event.expires_at, now) if event.expires_at is not None else float("inf")
        if is_closed(job.state, entry):
            due_s = now.mono_s  # asked for behind a stop that was not read yet: nobody has to answer
        job.requests[request_id(event.job_id, event.node_id, key, event.generation)] = key
        job.asked[key] = Asked(entry, due_s)
        self._put(due_s, Item("request", event.job_id, key))

    def _take_decision(self, job: LiveJob, event: ev.ApprovalDecided, now: Now) -> None:
        asked = job.asked.pop(event.idempotency_key, None)
        state = job.state.keys[event.idempotency_key]
        if event.decision is not Said.APPROVE:
            if not state.live:
                _give_back(job, event.idempotency_key)
        else:
            confirming.resumed(job, self.folded, self._terms)
        if event.decision is Said.EDIT and asked is not None and job.state.entry(event.node_id) is not asked.entry:
            return  # the call that the edit makes is asked for in the same group of events
        free = job.keys.get(event.idempotency_key)
        if isinstance(free, Reopened):
            self._put_off(free, now.mono_s, Item("key", job.state.job_id, event.idempotency_key))
        elif state.st is St.NONE:
            job.pending.setdefault(event.node_id, Pending((event.node_id,), None, None, now.mono_s))
            self._hurry(job, event.node_id, now)

    def _change_course(self, job: LiveJob, now: Now) -> None:
        """A stop, an end or a new plan: what will never go on is settled, what was asked for is judged anew."""
        for node_id in job.pending:
            self._hurry(job, node_id, now)
        for key, free in job.keys.items():
            if isinstance(free, Reopened | Waiting):
                self._put_off(free, now.mono_s, Item("key", job.state.job_id, key))
        for key, asked in job.asked.items():
            self._put_off(asked, now.mono_s, Item("request", job.state.job_id, key))
        self._give_up(job)

    def _give_up(self, job: LiveJob) -> None:
        """A cancel waits for no human's word on what is parked; what undoes something goes on."""
        if job.state.cancel is None or not self._live:
            return
        for key in job.parked.values():
            entry = job.state.entry(job.state.keys[key].node_id)
            if entry is not None and is_stopped(job.state, entry):
                self._given_up[job.state.job_id, key] = None

    def _begin_wait(self, job: LiveJob, event: ev.JobWaiting, now: Now) -> None:
        """A node's wait is looked at once at the beginning: what it waits for may have come before it."""
        if event.wait_type == confirming.WAIT:
            confirming.asked(job, event)
        if event.node_id is None or event.idempotency_key is None or event.wait_type not in NODE_WAITS:
            return
        self._discharge(job, event.node_id)
        longest_s = waits.longest_s(job.state, event.node_id)
        due_s = now.mono_s + min(_seconds_until(event.due_at, now), longest_s) if event.due_at else float("inf")
        job.keys[event.idempotency_key] = Waiting(event, due_s)
        job.awaited[event.correlation_key or ""] = event.idempotency_key
        if event.wait_type == "human":
            job.requests[event.correlation_key or ""] = event.idempotency_key
        if not self._hurry_wait(job, event.correlation_key or "", now):
            self._put(due_s, Item("key", job.state.job_id, event.idempotency_key))

    def _hurry_wait(self, job: LiveJob, correlation_key: str, now: Now) -> bool:
        """Whether a signal for this wait lies in the inbox."""
        key = job.awaited.get(correlation_key)
        waiting = job.keys.get(key) if key is not None else None
        if key is None or correlation_key not in job.state.signals or not isinstance(waiting, Waiting):
            return False
        self._put_off(waiting, now.mono_s, Item("key", job.state.job_id, key))
        return True

    def _end_wait(self, job: LiveJob, event: ev.WaitCompleted, now: Now) -> None:
        if event.wait_type == confirming.WAIT:
            confirming.accept(job, self._terms)
            self._hurry_all(job, now)
            return
        confirming.resumed(job, self.folded, self._terms)
        if event.node_id is not None:
            self._hurry(job, event.node_id, now)
        job.awaited.pop(event.correlation_key or "", None)
        if isinstance(job.keys.get(event.idempotency_key or ""), Waiting):
            del job.keys[event.idempotency_key or ""]

    def _forget(self, job: LiveJob) -> None:
        """A sealed job costs nothing but its name, for a while: a repeat of its birth may still arrive."""
        for node_id in tuple(job.pending):
            self._discharge(job, node_id)
        job_id = job.state.job_id
        del self.jobs[job_id]
        self._forgotten.add(job_id)

    # requests

    def _admit(self, ahead: _Ahead, offset: int, now: Now) -> None:
        request = ahead.request
        job = self.jobs.get(request.job_id)
        if job is None or not _in_force(job, request):
            del self._requests[offset]
            return
        node_id = request.nodes[0]
        known = job.pending.get(node_id)
        due_s = now.mono_s + _seconds_until(request.not_before, now)
        pending = Pending(request.nodes, offset, ahead.parent, due_s)
        if known is not None:
            pending.grants, pending.due_s, pending.offered = known.grants, known.due_s, known.offered
            self._discharge(job, node_id)
        job.pending[node_id] = pending
        self._put(pending.due_s, Item("node", request.job_id, node_id))

    def _discharge(self, job: LiveJob, node_id: str) -> None:
        pending = job.pending.pop(node_id, None)
        if pending is not None and pending.offset is not None:
            self._requests.pop(pending.offset, None)

    # who is there

    def _offer(self, job: LiveJob, held: Pending | Reopened, step: Step) -> Step:
        """A grant that builds on what can be compared is for the worker that is known to be there, and no other."""
        life = self._presence.serving
        granted = next((one for one in step.decisions if isinstance(one, Grant)), None)
        if granted is None or life is None or step.due_s is None:
            return step
        if not confirming.builds_on(job.state, granted.message.nodes, self._terms):
            return step
        held.offered = Offered(life, step.due_s)
        message = granted.message.model_copy(update={"incarnation": life[1]})
        return Step((replace(granted, message=message),), step.due_s)

    def _miss(self, held: Pending | Reopened, now: Now) -> None:
        """What was offered to one worker, and not taken up in time: that worker is not there."""
        if held.offered is not None and held.offered.until_s <= now.mono_s:
            if self._presence.gone(held.offered.life):
                self._doubt_the_world()
            held.offered = None

    def _let_go(self, now: Now) -> None:
        """What was offered to workers that have ended is judged anew."""
        left, self._left = self._left, []
        for life in left:
            if self._presence.gone(life):
                self._doubt_the_world()
            for job in self.jobs.values():
                self._withdraw(job, life, now)

    def _withdraw(self, job: LiveJob, life: WorkerLife, now: Now) -> None:
        for node_id, pending in job.pending.items():
            if pending.offered is not None and pending.offered.life == life:
                pending.offered = None
                self._hurry(job, node_id, now)
        for key, free in job.keys.items():
            if isinstance(free, Reopened) and free.offered is not None and free.offered.life == life:
                free.offered = None
                self._put_off(free, now.mono_s, Item("key", job.state.job_id, key))

    def _doubt_the_world(self) -> None:
        """Ledger and executor were gone together: what was read from the log is confirmed before it is built on."""
        for job in self.jobs.values():
            if job.state.birth <= self._restored_at:
                confirming.resumed(job, self.folded, self._terms)

    # tools that fail

    def _judge_tool(self, job: LiveJob, said: ev.ToolInvocationFinished | ev.InvocationInDoubt, now: Now) -> None:
        """What a try itself says of how it ended counts for, or against, its tool."""
        key = said.idempotency_key
        tool, verdict = self._tool(job, said.node_id), tells_about_tool(said)
        if tool is None or verdict is None:
            return
        if verdict:
            waiting = self.quarantine.succeeded(tool, now)
        else:
            waiting = self.quarantine.failed(tool, (job.state.job_id, key), now)
        for item in waiting:
            self._look_again(item, now)

    def _tool(self, job: LiveJob, node_id: str) -> Tool | None:
        entry = job.state.entry(node_id)
        if entry is None or entry.pin is None:
            return None
        return Tool(job.state.created.tenant, entry.node.tool_name)

    def _look_again(self, item: Item, now: Now) -> None:
        job = self.jobs.get(item.job_id)
        free = job.keys.get(item.name) if job is not None and item.what == "key" else None
        if job is not None and isinstance(free, Reopened):
            self._try_again(job, item.name, free, now)
        elif job is not None and item.what == "node":
            self._hurry(job, item.name, now)

    def _sift(self, job: LiveJob, held: Pending | Reopened, item: Item, step: Step, now: Now) -> Step:
        """No grant goes out for a call of a tool in quarantine, but for its trial; a run ends before one."""
        granted = next((one for one in step.decisions if isinstance(one, Grant)), None)
        if granted is None or not self.quarantine:
            return step
        message = granted.message
        first, *later = [self._tool(job, node_id) for node_id in message.nodes]
        if first is not None:
            call, lasts_s = (job.state.job_id, message.idempotency_key), self._lasts_s(job, message.nodes[0])
            due_s = self.quarantine.wait(first, call, item, lasts_s, now)
            if due_s is not None:
                held.grants -= 1
                return Step((), due_s)
        end = next((place for place, tool in enumerate(later, 1) if tool in self.quarantine), None)
        if end is None:
            return step
        cut = message.model_copy(update={"nodes": message.nodes[:end], "rules": message.rules[:end]})
        return Step((replace(granted, message=cut),), step.due_s)

    def _lasts_s(self, job: LiveJob, node_id: str) -> float:
        entry = job.state.entry(node_id)
        return (entry.timeout_s if entry is not None else None) or 0.0

    # judgement

    def _judge(self, item: Item, facts: Facts, now: Now) -> list[Decision]:
        job = self.jobs.get(item.job_id)
        if job is None or job.state.needs_upgrade:
            return []
        try:
            return list(self._step(job, item, facts, now).decisions)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(job.state, error)
            return []

    def _step(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> Step:
        match item.what:
            case "node":
                return self._judge_node(job, item, facts, now)
            case "key":
                return self._judge_key(job, item, facts, now)
            case "request":
                return self._judge_request(job, item, now)

    def _judge_node(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> Step:
        pending = job.pending.get(item.name)
        if pending is None:
            return Step()
        self._miss(pending, now)
        step = adjudicate(job, item.name, pending, terms=self._terms, facts=facts, now=now)
        step = self._offer(job, pending, self._sift(job, pending, item, step, now))
        if step.due_s is not None:
            self._put_off(pending, step.due_s, item)
            if pending.scope is not None:
                self._guarded.setdefault(pending.scope, {})[item] = None
        else:
            self._discharge(job, item.name)
        return step

    def _judge_key(self, job: LiveJob, item: Item, facts: Facts, now: Now) -> Step:
        held = job.keys.get(item.name)
        if held is None:
            return Step()
        of = Key(job.state, item.name, job.state.keys[item.name])
        if isinstance(held, Started):
            step = doubt(of, held, self._terms, facts, now.mono_s)
        elif isinstance(held, Waiting):
            step = wait_goes_on(of, held, self._terms, now)
        else:
            self._miss(held, now)
            step = again(job, of, held, terms=self._terms, facts=facts, now=now)
            step = self._offer(job, held, self._sift(job, held, item, step, now))
        self._put_off(held, step.due_s if step.due_s is not None else float("inf"), item)
        return step

    def _judge_request(self, job: LiveJob, item: Item, now: Now) -> Step:
        """Nobody has answered in time, or nobody has to any more."""
        of, asked = Key(job.state, item.name, job.state.keys[item.name]), job.asked.get(item.name)
        if of.state.requested is None or asked is None or job.state.terminal is not None:
            return Step()
        if is_closed(job.state, job.state.entry(of.state.node_id)):
            del job.asked[item.name]
            if of.state.st is St.REOPENED:  # what was tried ends as such
                return Step()
            return Step((settlement.rejected(of, RejectReason.CANCELLED, "the job is stopping"),))
        if not is_past(of.state.requested, now):
            self._put_off(asked, now.mono_s + _seconds_until(of.state.requested.expires_at, now), item)
            return Step()
        del job.asked[item.name]
        return Step((expired(of, of.state.requested),))

    def _announced(self) -> list[Decision]:
        announcements, self._announcements = self._announcements, {}
        return [
            settlement.worker_ended(job_id, life, self._ended[life])
            for job_id, life in announcements
            if job_id in self.jobs
        ]

    def _heard(self, now: Now) -> list[Decision]:
        decided: list[Decision] = []
        waiting: list[_Word] = []
        for held in self._words:
            job = self.jobs.get(held.command.job_id)
            if held.command.as_of > self.folded or (job is not None and job.state.needs_upgrade):
                waiting.append(held)
            elif job is not None:
                decided += self._decided_word(job, held, now)
        self._words = waiting
        return decided

    def _decided_word(self, job: LiveJob, held: _Word, now: Now) -> list[Decision]:
        try:
            return self._decide_word(job, held, now)
        except Exception as error:  # noqa: BLE001 - it concerns this job alone
            self.unjudged.note(job.state, error)
            return []

    def _decide_word(self, job: LiveJob, held: _Word, now: Now) -> list[Decision]:
        match held.command:
            case Resolve() as command:
                return self._resolve(job, command, held)
            case Respond() as command:
                return self._respond(job, command, held, now)
            case Signal() as command:
                return self._take_signal(job, command, held.id)
            case CancelContract() as command:
                return self._call_off(job, command, held.id)
            case _:
                return []

    def _resolve(self, job: LiveJob, command: Resolve, held: _Word) -> list[Decision]:
        """What a human's word on a parked key becomes; the first one counts, the fold sees to that."""
        key = job.parked.get(command.execution_id)
        if key is None:
            return []
        of, created = Key(job.state, key, job.state.keys[key]), job.state.created
        if command.tenant != created.tenant:
            return self._turn_down(held, "the job is another tenant's")
        may_not = may_not_resolve(of.state, created.submitted_by, command.by)
        if may_not is not None:
            return self._turn_down(held, may_not)
        return [_RESOLUTIONS[command.verdict](of, command, held.id)]

    def _respond(self, job: LiveJob, command: Respond, held: _Word, now: Now) -> list[Decision]:
        """What an answer to a request becomes; nothing for one that was answered before."""
        key = job.requests.get(command.request_id)
        if key is None or is_closed(job.state, job.state.entry(job.state.keys[key].node_id)):
            return []
        asked = job.asked.get(key)
        emit = (
            answer(job, key, asked, command, held.id, terms=self._terms, now=now)
            if asked is not None
            else self._answer_form(job, key, command, held, now)
        )
        if emit is None:
            return []
        if isinstance(emit, str):
            return self._turn_down(held, emit)
        job.asked.pop(key, None)
        job.awaited.pop(command.request_id, None)
        return [emit]

    def _answer_form(self, job: LiveJob, key: str, command: Respond, held: _Word, now: Now) -> Emit | str | None:
        """What an answer to a form of the plan becomes; past its time, the clock's word goes before it."""
        waiting = job.keys.get(key)
        if not isinstance(waiting, Waiting) or command.request_id not in job.awaited or waiting.due_s <= now.mono_s:
            return None
        return waits.answered(Key(job.state, key, job.state.keys[key]), waiting.event, command, held.id)

    def _turn_down(self, held: _Word, why: str) -> list[Decision]:
        self.unheard.append(Unheard(held.command.job_id, held.id, why))
        return []

    def _call_off(self, job: LiveJob, command: CancelContract, command_id: str) -> list[Decision]:
        """What waits ends at once; what is under way is settled first, and not tried again."""
        for key, state in job.state.keys.items():
            if execution_id(job.state.job_id, state.node_id, key) != command.execution_id:
                continue
            of = Key(job.state, key, state)
            unanswered = state.st is St.NONE and state.is_asking and key in job.asked
            if state.st is St.PARKED or state.is_waiting or unanswered:
                job.asked.pop(key, None)
                return [settlement.called_off(of, command, command_id)]
            if state.st in (St.STARTED, St.REOPENED) and not state.cancel_requested:
                return [settlement.cancel_asked(of, command, command_id)]
        return []

    def _take_signal(self, job: LiveJob, command: Signal, command_id: str) -> list[Decision]:
        """The first signal of a declared key counts; what its node waits for already it ends at once."""
        name = command.correlation_key
        known = name in job.state.signals or name in job.signalled
        asked = confirming.awaits(job.state, command)
        ends = job.state.terminal is not None or (job.state.stopping is not None and not asked)  # an undo may ask, too
        if known or ends or not (asked or waits.declared(job.state, name)):
            return []
        if asked and not confirming.may_accept(job.state, command):
            return []
        job.signalled.add(name)
        if asked:
            said = waits.kept(job.state, command, command_id)
            end = confirming.accepted(job.state, command, command_id)
            return [Emit(job.state.job_id, (said, settlement.written(end, name, command_id)))]
        events = [waits.kept(job.state, command, command_id)]
        key = job.awaited.get(name)
        waiting = job.keys.get(key) if key is not None else None
        if key is not None and isinstance(waiting, Waiting):
            of = Key(job.state, key, job.state.keys[key])
            events.append(waits.ended(of, waiting.event, command.payload, command_id))
        return [Emit(job.state.job_id, tuple(events), key)]

    def _cancelled(self) -> list[Decision]:
        given_up, self._given_up = self._given_up, {}
        decided: list[Decision] = []
        for job_id, key in given_up:
            job = self.jobs.get(job_id)
            if job is not None and job.state.cancel is not None and job.state.keys[key].st is St.PARKED:
                decided.append(settlement.cancelled(Key(job.state, key, job.state.keys[key]), job.state.cancel))
        return decided

    def _settled_by_probe(self) -> list[Decision]:
        found, self._found = self._found, []
        return [emit for job_id, probed in found if (emit := self._settle(job_id, probed)) is not None]

    def _settle(self, job_id: str, probed: ev.InvocationProbed) -> Emit | None:
        job = self.jobs.get(job_id)
        state = job.state.keys.get(probed.idempotency_key) if job is not None else None
        if job is None or state is None or state.st is St.SETTLED or probed.invocation_id not in state.live:
            return None
        if probed.external_key != state.tries[probed.invocation_id].external_key:
            return None
        # a late answer: where the try in charge sends the same key, it is that one's effect that may have been found
        sender = state.n if state.n in state.live else None
        same = sender is not None and state.tries[sender].external_key == probed.external_key
        nonce = sender if sender is not None and same else probed.invocation_id
        return settlement.found(Key(job.state, probed.idempotency_key, state), nonce, probed)

    def _views(self, now: Now) -> list[Decision]:
        views: list[Decision] = [View(record_of(job.state, key, offset)) for job, key, offset in self._settled]
        contents = self._terms.contents
        lines = [settled(job.state, key, contents, now) for job, key, _ in self._settled]
        for line in (*lines, *(line for job in self._over for line in released(job.state, contents))):
            if line is not None:
                contents.take(line)
                views.append(Line(line))
        self._settled.clear()
        self._over.clear()
        return views

    # times

    def _due_of(self, item: Item) -> float | None:
        job = self.jobs.get(item.job_id)
        if job is None:
            return None
        match item.what:
            case "key":
                held = job.keys.get(item.name)
            case "node":
                held = job.pending.get(item.name)
            case "request":
                held = job.asked.get(item.name)
        return held.due_s if held is not None else None

    def _put(self, due_s: float, item: Item) -> None:
        if self._live and due_s < float("inf"):
            self._agenda.put(due_s, item)

    def _put_off(self, held: Pending | Started | Reopened | Waiting | Asked, due_s: float, item: Item) -> None:
        held.due_s = due_s
        self._put(due_s, item)

    def _hurry_all(self, job: LiveJob, now: Now) -> None:
        """Whatever of the job waits to start is looked at now."""
        for node_id in job.pending:
            self._hurry(job, node_id, now)
        for key, free in job.keys.items():
            if isinstance(free, Reopened):
                self._put_off(free, now.mono_s, Item("key", job.state.job_id, key))

    def _hurry(self, job: LiveJob, node_id: str, now: Now) -> None:
        pending = job.pending.get(node_id)
        if pending is not None:
            self._put_off(pending, now.mono_s, Item("node", job.state.job_id, node_id))


def _give_back(job: LiveJob, key: str) -> None:
    for account in job.accounts.values():
        account.give_back(key)


def _in_force(job: LiveJob, request: ToolRequest) -> bool:
    state = job.state
    return (
        (state.birth, state.revision) == (request.birth, request.revision)
        and state.plan_hash == request.plan_hash
        and not is_closed(state, state.entry(request.nodes[0]))
    )


def _seconds_until(moment: str | None, now: Now) -> float:
    return max(0.0, (datetime.fromisoformat(moment) - now.wall).total_seconds()) if moment is not None else 0.0


def _look_for_blobs(job: LiveJob, node_id: str, look: Look) -> None:
    entry = job.state.entry(node_id)
    if entry is None or not entry.node.args:
        return
    try:
        look.blobs.update((ref.sha256, ref.size) for ref in blobs_needed(job.state, entry))
    except NotReady:
        return


def _look_for_key(job: LiveJob, item: Item, look: Look) -> None:
    state, held = job.state.keys[item.name], job.keys[item.name]
    if state.needs_yes and state.requested is None:
        _look_for_blobs(job, state.node_id, look)
    if state.live:
        look.effects.append((item.job_id, item.name))
    if isinstance(held, Started) and held.cause is None:
        look.leases.append(item.name)


_RESOLUTIONS: Mapping[str, Callable[[Key, Resolve, str], Emit]] = {
    "happened": settlement.happened,
    "not_executed": settlement.not_executed,
    "retry": settlement.retry_by_hand,
}
