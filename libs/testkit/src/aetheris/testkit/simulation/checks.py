"""What must hold, whatever happens: looked at on every record, call and effect, and when all has come to rest."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled, create_job
from aetheris.protocol.messages.commands import ContentRecord
from aetheris.protocol.messages.event_values import Decision, Outcome
from aetheris.protocol.messages.events import (
    TERMINAL,
    ApprovalDecided,
    CancelRequested,
    Event,
    JobCompleted,
    JobCreated,
    JobFailed,
    JobPaused,
    JobResumed,
    JobStopping,
    PlanGenerated,
    PolicyAllowed,
    ToolInvocationFinished,
    ToolInvocationStarted,
    WorkerEnded,
)
from aetheris.protocol.plan.graph import DuplicateScope, EffectClass, Kind, undo_id
from aetheris.protocol.plan.prompts import GOAL_NODE
from aetheris.testkit.simulation.activated import ActivationWatch
from aetheris.testkit.simulation.ballots import Ballots
from aetheris.testkit.simulation.body_watch import BodyWatch
from aetheris.testkit.simulation.external_system import ExternalCall, ExternalEffect, SimulatedExternalSystem
from aetheris.testkit.simulation.forged_records import needs_signature
from aetheris.testkit.simulation.frozen import FreezeWatch
from aetheris.testkit.simulation.installation import SimRecords
from aetheris.testkit.simulation.log import Entry
from aetheris.testkit.simulation.ordered_rules import RulesWatch
from aetheris.testkit.simulation.quarantines import ToolReport, report_of
from aetheris.testkit.simulation.questions import QuestionWatch
from aetheris.views.standing import job_view

Life = tuple[str, str]
"""worker_id, incarnation"""


class Broken(Exception):
    """A promise that a run broke; `rule` names it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class SimulationObserver:
    """Folds the log as it grows, and remembers where the facts lie that a call needs before it."""

    def __init__(
        self,
        number_of: Callable[[str], int],
        records: SimRecords,
        activations: ActivationWatch,
        rules: RulesWatch,
        bodies: BodyWatch,
    ) -> None:
        """`records`: a planner's, of all partitions; they judge what is read here, but for what was forged."""
        self.activations = activations
        self.rules = rules
        self.bodies = bodies
        self.records = records
        self.void: dict[str, set[int]] = {}
        """By job: where lies what no writer of its kind has signed for it."""
        self.jobs: dict[str, JobState] = {}
        self.freezes = FreezeWatch()
        self._number_of = number_of
        self._started: dict[str, ToolInvocationStarted] = {}
        self._started_at: dict[str, int] = {}
        self._stops: dict[str, list[tuple[int, int | None]]] = {}
        self._undoes: dict[tuple[str, str], int] = {}
        """(job_id, node_id) → the revision that it came with, if it undoes a node."""
        self._allowed_at: dict[str, int] = {}
        self._approved_at: dict[str, int] = {}
        self._ballots = Ballots()
        self._questions = QuestionWatch()
        self._sent: set[str] = set()
        self._said: dict[tuple[str, str, str], str | None] = {}
        """(job_id, worker_id, incarnation) → who said that it has ended."""
        self._pauses: dict[str, list[int]] = {}
        """job_id → where a pause begins and ends, by turns."""
        self._cancelled: set[str] = set()
        self.tool_reports: list[ToolReport] = []

    def record(self, entry: Entry, *, forged: bool) -> None:
        """The next record of jobs.events; `forged`: no service has written it, whoever believes it."""
        event, offset = entry.body, entry.record.offset
        is_birth = isinstance(event, JobCreated) and event.job_id not in self.jobs
        if is_birth and self.rules.refuses(event, self._number_of(event.job_id), offset):
            return
        counts = self.records.counts(entry)
        if needs_signature(event) if forged else not counts:
            self.void.setdefault(event.job_id, set()).add(offset)
            return
        job = self.jobs.get(event.job_id)
        if job is None:
            if isinstance(event, JobCreated):
                self.jobs[event.job_id] = create_job(event, offset)
            return
        known = job.keys.get(event.idempotency_key) if isinstance(event, ToolInvocationFinished) else None
        before = known.status if known is not None else None
        counts = apply(job, event, offset)
        self._questions.note(event, counts=counts)
        self._note_bodies(job, event, offset, counts=counts)
        if counts:
            report = report_of(job, event, offset, before)
            if report is not None:
                self.tool_reports.append(report)
        self._note(event, offset)

    def sent(self, call: ExternalCall) -> None:
        """A call goes out: one under each invocation_id, declared before, with what it needs before that."""
        started = self._started.get(call.invocation_id)
        if call.invocation_id in self._sent:
            raise Broken("one_send_per_nonce", f"{call.invocation_id} of {call.node_id} is sent twice")
        self._sent.add(call.invocation_id)
        if started is None:
            raise Broken("declared_before_sent", f"{call.invocation_id} of {call.node_id} has no started in the log")
        at = self._started_at[call.invocation_id]
        undoes = self._undoes.get((call.job_id, call.node_id), -1)
        for stop, up_to in self._stops.get(call.job_id, ()):
            if stop < at and (up_to is None or undoes <= up_to):
                raise Broken(
                    "nothing_starts_after_a_stop", f"{call.invocation_id} of {call.node_id} at {at}, stop at {stop}"
                )
        if len([place for place in self._pauses.get(call.job_id, ()) if place < at]) % 2:
            raise Broken("nothing_starts_behind_a_pause", f"{call.invocation_id} of {call.node_id} at {at}")
        strange = self.bodies.goes_out(self.jobs[call.job_id], call, at)
        if strange is not None:
            raise Broken("calls_are_of_the_body_in_charge", strange)
        frozen = self.freezes.broken(self.jobs[call.job_id], call, at, self._number_of(call.job_id))
        if frozen is not None:
            raise Broken("nothing_starts_behind_a_freeze", frozen)
        if self._questions.is_behind_one(call.invocation_id):
            raise Broken("nothing_starts_behind_an_open_question", f"{call.invocation_id} of {call.node_id} at {at}")
        approved = self._approved_at.get(call.key, at) < at
        denied = self.activations.denied(call, at, self._number_of(call.job_id), approved=approved)
        if denied is not None:
            raise Broken("nothing_starts_that_the_policy_denies", denied)
        if call.irreversible and not self._allowed_at.get(call.key, at) < at:
            raise Broken("irreversible_only_when_allowed", f"{call.invocation_id} of {call.node_id} at {at}")
        if call.irreversible and not self._ballots.enough(call.key):
            raise Broken("no_call_without_its_votes", f"{call.invocation_id} of {call.node_id} at {at}")

    @property
    def called(self) -> Container[str]:
        """The invocation_ids of all calls that went out."""
        return self._sent

    def believed(self, effects: Iterable[ExternalEffect], lies: Collection[Life]) -> int:
        """Calls cleared before the log had a human's word, with his name, that their sender had ended; it was false."""
        return sum(
            1
            for call in (effect.call for effect in effects)
            if call.life in lies
            and self._said.get((call.job_id, *call.life))
            and self._started_at[call.invocation_id] < self.jobs[call.job_id].ended_workers[call.life]
        )

    def _note_bodies(self, job: JobState, event: Event, offset: int, *, counts: bool) -> None:
        strange = self.bodies.note(job, event, offset, counts=counts)
        if strange is not None:
            raise Broken("code_that_has_not_changed_goes_on", strange)
        if counts and isinstance(event, ToolInvocationFinished) and event.outcome is not Outcome.RETRYABLE:
            left = self.bodies.open_behind(job, event.node_id)
            if left:
                raise Broken("a_body_ends_behind_its_calls", f"{event.node_id} of {job.job_id}: {left} are under way")

    def _note(self, event: Event, offset: int) -> None:
        self._ballots.note(event, self.jobs[event.job_id].created.submitted_by)
        self.freezes.note(event, offset)
        strange = self.activations.note(event, offset)
        if strange is not None:
            raise Broken("decisions_name_what_was_activated", f"{event.job_id}: {strange}")
        match event:
            case ToolInvocationStarted():
                self._started.setdefault(event.invocation_id, event)
                self._started_at.setdefault(event.invocation_id, offset)
            case PlanGenerated(diff=diff) if diff is not None:
                undoing = [node["id"] for node in diff["nodes"] if node.get("compensates")]
                self._undoes.update(((event.job_id, node_id), event.revision) for node_id in undoing)
            case JobStopping():
                self._stops.setdefault(event.job_id, []).append((offset, event.up_to_revision))
            case WorkerEnded():
                self._said.setdefault((event.job_id, event.worker_id, event.incarnation), event.by)
            case JobPaused() | JobResumed() | CancelRequested():
                self._note_pause(event, self._pauses.setdefault(event.job_id, []), offset)
            case PolicyAllowed():
                self._allowed_at.setdefault(event.idempotency_key, offset)
            case ApprovalDecided(decision=Decision.APPROVE):
                self._allowed_at.setdefault(event.idempotency_key, offset)
                self._approved_at.setdefault(event.idempotency_key, offset)
            case _ if isinstance(event, TERMINAL):
                self._stops.setdefault(event.job_id, []).append((offset, None))
            case _:
                pass

    def _note_pause(self, event: JobPaused | JobResumed | CancelRequested, places: list[int], offset: int) -> None:
        number, is_on = (len(places) + 1) // 2, bool(len(places) % 2)
        if isinstance(event, JobPaused):
            counts = not is_on and event.number == number + 1 and event.job_id not in self._cancelled
        elif isinstance(event, JobResumed):
            counts = is_on and event.number == number
        else:
            counts = is_on
            self._cancelled.add(event.job_id)
        if counts:
            places.append(offset)


def check_effect(
    effect: ExternalEffect,
    external: SimulatedExternalSystem,
    retries: Mapping[tuple[str, str], int],
    observer: SimulationObserver,
    *,
    lies: Collection[Life],
    scope: DuplicateScope,
) -> None:
    """At most once, by what really took effect so far; `lies`: who lived, though a human said that they had ended."""
    call = effect.call
    node = (call.job_id, call.node_id)
    effects = external.of_node(*node)
    if call.effect_class is EffectClass.IDEMPOTENT:
        if len({(one.call.external_key, one.call.args) for one in effects}) > 1:
            raise Broken("one_key_and_arguments_per_node", f"{node} took effect under {_keys(effects)}")
    elif len(effects) > 1 + retries.get(node, 0) + observer.believed(effects, lies):
        raise Broken("at_most_once", f"{node} ({call.effect_class}) took effect {len(effects)} times: {_keys(effects)}")
    if call.irreversible and scope != "job":
        _check_elsewhere(call, external, sum(retries.values()) + observer.believed(external.effects, lies))
    if call.irreversible or (call.node_id.startswith(f"{GOAL_NODE}.") and call.effect_class is not EffectClass.PURE):
        _check_same(call, external, sum(count for (job_id, _), count in retries.items() if job_id == call.job_id))


NeverBegun = Callable[[str, Life, str], bool]
"""(job_id, life, invocation_id) → whether that process has the job's partition, and knows of no call that it made."""


@dataclass(frozen=True, slots=True)
class Rest:
    """How a run came to rest."""

    mended: bool
    """Nothing goes wrong any more."""
    decided: bool
    """Humans have answered what they were asked."""
    resolved: bool
    """A human has settled what was parked."""
    never_begun: NeverBegun
    max_tries: int
    """Of a call whose plan says nothing of it."""


def check_end(
    observer: SimulationObserver, external: SimulatedExternalSystem, expected: Iterable[str], rest: Rest
) -> None:
    """What must hold when nothing moves any more."""
    for job_id in expected:
        job = observer.jobs.get(job_id)
        if job is None:
            raise Broken("stuck", f"{job_id} was never created")
        parked = any(state.status is KeyStatus.PARKED for state in job.keys.values())
        waits = parked or ("resolve", None) in job.open_waits
        waits = (waits and not rest.resolved) or (not rest.decided and _asks(job))
        waits = waits or _waits_for_another(job, observer.jobs)
        if job.terminal is None and not waits:
            raise Broken("stuck", f"{job_id} neither ends nor waits for a human")
        for key, state in job.keys.items():
            _check_result(job, key, state, external)
            _check_sure(job, key, state, external)
            _check_open(job, state, decided=rest.decided)
            _check_strays(job, state, rest.never_begun)
            if rest.mended:
                _check_settleable(job, state, rest.max_tries)
        _check_named(job)
        if isinstance(job.terminal, JobCompleted):
            _check_nothing_lost(job, external)
        if isinstance(job.terminal, JobFailed):
            _check_undone(job)


def _asks(job: JobState) -> bool:
    return any(state.is_asking or state.is_waiting for state in job.keys.values())


def _waits_for_another(job: JobState, jobs: Mapping[str, JobState]) -> bool:
    """Whether it waits for a call of another job that a human has not settled yet."""
    named = (one.correlation_key or "" for one in job.open_waits.values() if one.wait_type == "duplicate")
    return any(jobs[name.partition("/")[0]].terminal is None for name in named)


def check_lines(lines: Iterable[ContentRecord], jobs: Mapping[str, JobState]) -> None:
    """Of calls that mean the same: what is over is not said to be under way, where everybody else would wait for it."""
    stands = {line.execution_id: line for line in lines}
    for line in stands.values():
        job = jobs[line.job_id]
        key = next((key for key in job.keys if execution_id(job.job_id, line.node_id, key) == line.execution_id), None)
        is_settled = key is not None and job.keys[key].status is KeyStatus.SETTLED
        never_starts = job.terminal is not None and (key is None or job.keys[key].status is KeyStatus.NONE)
        if line.state == "open" and (is_settled or never_starts):
            raise Broken("said_to_be_under_way", f"{line.node_id} of {line.job_id} is over, and its line is open")


def check_folds(observer: SimulationObserver, folds: Iterable[tuple[str, Mapping[str, JobState]]]) -> None:
    """All who have folded the same prefix say the same."""
    for name, jobs in folds:
        for job_id, job in jobs.items():
            known = observer.jobs.get(job_id)
            if known is None:
                raise Broken("folds_agree", f"{name} folds {job_id}, which nobody has created")
            if job.creation_offset == known.creation_offset and _essence(job) != _essence(known):
                raise Broken("folds_agree", f"{name} folds {job_id} otherwise")


def _check_same(call: ExternalCall, external: SimulatedExternalSystem, retried: int) -> None:
    """The same call by meaning, whichever node makes it: one that is irreversible, or that a model asked for."""
    same = {
        one.call.node_id
        for one in external.effects
        if (one.call.job_id, one.call.content) == (call.job_id, call.content)
    }
    if len(same) > 1 + retried:
        raise Broken("same_call_once", f"{call.job_id}: {sorted(same)} are the same call")


def _check_elsewhere(call: ExternalCall, external: SimulatedExternalSystem, more: int) -> None:
    """The same call by meaning in jobs that share a session, or a tenant."""
    same = {(one.call.job_id, one.call.node_id) for one in external.effects if one.call.content == call.content}
    if len(same) > 1 + more:
        raise Broken("same_call_once_in_all_jobs", f"{sorted(same)} are the same call")


def _check_sure(job: JobState, key: str, state: KeyState, external: SimulatedExternalSystem) -> None:
    """Sure that there is no effect means that there is none, and that none is on its way."""
    if state.status is not KeyStatus.SETTLED or state.outcome is Settled.SUCCESS or not state.sure:
        return
    calls = [*(effect.call for effect in external.effects), *(call for call in external.under_way if call.may_land)]
    if any(call.key == key and call.effect_class is not EffectClass.PURE for call in calls):
        raise Broken("sure_means_sure", f"{job.job_id} {state.node_id} ({key[:8]}) took effect, and is said not to")


def _check_open(job: JobState, state: KeyState, *, decided: bool) -> None:
    """When all humans have answered, nothing is asked any more; what is parked says why."""
    if decided and job.terminal is None and job.stopping is None and (state.is_asking or state.is_waiting):
        raise Broken("answers_count", f"{job.job_id} {state.node_id} still waits for an answer that was given")
    if state.status is KeyStatus.PARKED and not state.parked_because:
        raise Broken("parked_says_why", f"{job.job_id} {state.node_id}")


def _check_strays(job: JobState, state: KeyState, never_begun: NeverBegun) -> None:
    """Who was cut off before a call, and is there again, says so: no human is asked about it."""
    if state.status is not KeyStatus.PARKED or job.terminal is not None:
        return
    invocation = state.invocations.get(state.current_invocation or "")
    if invocation is not None and never_begun(
        job.job_id, (invocation.worker_id, invocation.incarnation), state.current_invocation or ""
    ):
        raise Broken(
            "a_stray_is_reported",
            f"{job.job_id} {state.node_id}: {state.current_invocation} was never made, and is parked",
        )


def _check_settleable(job: JobState, state: KeyState, max_tries: int) -> None:
    """Nothing is left to a human that could be found out without him: whose tries can act no more is asked about."""
    entry = job.entry(state.node_id)
    if state.status is not KeyStatus.PARKED or entry is None or entry.node.kind is Kind.WORKFLOW:
        return  # what a body's code will do nobody can ask
    most = entry.node.retry.max_attempts if entry.node.retry is not None else max_tries
    if state.attempt_count >= most:
        return
    over = all(
        invocation_id in state.returned or (invocation.worker_id, invocation.incarnation) in job.ended_workers
        for invocation_id, invocation in state.invocations.items()
        if invocation_id in state.unresolved
    )
    if entry.effect_class is not EffectClass.OPAQUE and over:
        raise Broken("parked_in_vain", f"{job.job_id} {state.node_id}: {state.parked_because}")


def _check_named(job: JobState) -> None:
    """A job that waits for a human says for what, and what he may do."""
    parked = next((state for state in job.keys.values() if state.status is KeyStatus.PARKED), None)
    if job.terminal is not None or (parked is None and ("resolve", None) not in job.open_waits):
        return
    view = job_view(job, "")
    steps = {step["node_id"]: step for step in view["steps"]}
    text = str(view.get("why", ""))
    reported = parked is None or (parked.node_id in text and "execution_id" in steps[parked.node_id])
    if view["status"] != "waiting" or not reported or not ("Resolve" in text or "cancel" in text):
        raise Broken("who_can_end_it_is_named", f"{job.job_id}: {view['status']}, {text}")


def _check_result(job: JobState, key: str, state: KeyState, external: SimulatedExternalSystem) -> None:
    if state.outcome is not Settled.SUCCESS or state.waits_for is not None:
        return
    answered: list[Any] = external.results.get((job.job_id, state.node_id), [])
    if state.result not in answered:
        raise Broken("recorded_results_happened", f"{job.job_id} {state.node_id} ({key[:8]}) by {state.via}")


def _check_nothing_lost(job: JobState, external: SimulatedExternalSystem) -> None:
    for node_id in job.entries:
        entry = job.entry(node_id)
        pure = entry is None or entry.effect_class is EffectClass.PURE
        if entry is not None and entry.call is not None and not _succeeded(job, node_id):
            _check_told(job, node_id, external)
            continue  # its body has gone on without it
        if not pure and not external.of_node(job.job_id, node_id):
            raise Broken("no_call_lost", f"{job.job_id} is completed, but {node_id} never took effect")


def _check_told(job: JobState, node_id: str, external: SimulatedExternalSystem) -> None:
    """A model goes on without what surely took no effect, and without nothing else."""
    if job.created.goal is not None and external.of_node(job.job_id, node_id):
        raise Broken("a_model_is_told_what_is_so", f"{job.job_id}: {node_id} took effect after all")


def _check_undone(job: JobState) -> None:
    """A failed job has undone all that it could: it stopped only at a compensation that failed."""
    nodes = [entry.node for node_id in job.entries if (entry := job.entry(node_id)) is not None]
    done = [node.id for node in nodes if node.compensate_with is not None and _succeeded(job, node.id)]
    undone = [node_id for node_id in done if _succeeded(job, undo_id(node_id))]
    ends = [job.settled_key(undo) for undo in job.compensations]
    failed = any(end is not None and (end[1].outcome is not Settled.SUCCESS or end[1].partial) for end in ends)
    unresolvable = any(
        undo in job.finished and job.finished[undo].result_type == "permanent_failure" for undo in job.compensations
    )
    if undone != done and not failed and not unresolvable:
        raise Broken("undone", f"{job.job_id} failed; of {done} only {undone} are undone")


def _succeeded(job: JobState, node_id: str) -> bool:
    settled = job.settled_key(node_id)
    return settled is not None and settled[1].outcome is Settled.SUCCESS


def _essence(job: JobState) -> tuple[Any, ...]:
    return (
        job.plan_hashes,
        job.stopping,
        job.paused,
        job.pauses,
        job.frozen,
        job.freezes,
        job.terminal,
        job.compensations,
        job.ended_workers,
        job.gone,
        job.invocation_keys,
        job.keys,
    )


def _keys(effects: Sequence[ExternalEffect]) -> str:
    return ", ".join(f"{one.call.external_key} by {one.call.invocation_id}" for one in effects)
