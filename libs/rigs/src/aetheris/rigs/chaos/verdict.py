"""What came of a run: effects counted outside against what the log says of each step (pure).

A step is *expected* once; *waiting* where it is parked, or behind a parked one, and had no effect; *lost* where its
job ended without its effect; a *duplicate* is a further effect (of an idempotent tool: a further key). Where a job was
undone, so is each step that succeeded, once; where it was not, none is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.fold.workers import Names
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import EffectClass, Kind, dependencies, undo_id
from aetheris.rigs.chaos.observer import ObservedJob
from aetheris.rigs.chaos.schedule import AMONG_BROKERS, FaultKind, JobPlan, Struck, tag, undo_tag
from aetheris.rigs.chaos.tools import TIMEOUT_S
from aetheris.runtime.process.installation import process_of

SLACK_S = 2.0
"""How long after the fact the observer may have read a record."""

EFFECTFUL = tuple(kind for kind in EffectClass if kind is not EffectClass.PURE)
_OF_ANY_CALL = frozenset({FaultKind.SLOW, FaultKind.RESET, FaultKind.KILL_BROKER, FaultKind.FULL_DISK, *AMONG_BROKERS})
"""Where a report can't be appended for long, an executor lets go of its lease."""
_OF_ITS_OWN_CALLS = frozenset(
    {FaultKind.KILL, FaultKind.PAUSE, FaultKind.REMOVE, FaultKind.ON_THE_WIRE, FaultKind.BORN_WRONG}
)

Calls = Mapping[str, Counter[str]]
"""Tag → external key → how often it reached the external system."""


@dataclass(frozen=True)
class Doubt:
    """A try whose end nobody saw, and how that ended."""

    job_id: str
    step: str
    reason: str
    ended: str


@dataclass(frozen=True)
class Parked:
    """A step that waits for a human: why, and which fault hit its call (None: none did)."""

    job_id: str
    step: str
    reason: str
    fault: str | None


@dataclass
class ChaosVerdict:
    """The counts; `holds` if nothing was duplicated, lost or stuck, nothing parked without a fault, all proofs hold."""

    expected: int = 0
    observed: int = 0
    duplicates: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    stuck: list[str] = field(default_factory=list[str])
    waiting: int = 0
    called_off: int = 0
    repeats: int = 0
    in_doubt: list[Doubt] = field(default_factory=list[Doubt])
    parked: list[Parked] = field(default_factory=list[Parked])
    completed: int = 0
    cancelled: int = 0
    undone_jobs: int = 0
    failed: list[str] = field(default_factory=list[str])
    unproven: list[str] = field(default_factory=list[str])
    settleable: list[str] = field(default_factory=list[str])
    to_undo: int = 0
    undone: int = 0

    @property
    def looked_at(self) -> set[str]:
        """The jobs with anything that somebody may want to look at."""
        reported = (*self.duplicates, *self.lost, *self.stuck, *self.failed, *self.unproven, *self.settleable)
        return {one.split()[0].rstrip(":") for one in reported} | {one.job_id for one in self.parked}

    @property
    def ended(self) -> int:
        """Jobs that have ended."""
        return self.completed + self.cancelled + self.undone_jobs + len(self.failed)

    @property
    def unexplained(self) -> list[Parked]:
        """Parked, though no fault hit the call."""
        return [parked for parked in self.parked if parked.fault is None]

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return not (self.duplicates or self.lost or self.stuck or self.unexplained or self.unproven or self.settleable)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"holds": self.holds, **asdict(self), "parked_without_fault": [asdict(one) for one in self.unexplained]}


def verdict(
    jobs: Mapping[str, JobPlan],
    seen: Mapping[str, ObservedJob],
    names: Names,
    effects: Sequence[Mapping[str, str]],
    struck: Sequence[Struck],
) -> ChaosVerdict:
    """Count.

    Args:
        names: which workers have ended, and how that is known.
        effects: every call that reached the external system, {key, tag, at_s}.
    """
    calls: dict[str, Counter[str]] = {}
    for effect in effects:
        calls.setdefault(effect["tag"], Counter())[effect["key"]] += 1
    there_s = {effect["key"]: float(effect["at_s"]) for effect in reversed(effects)}
    found = ChaosVerdict(expected=len(jobs) * len(EFFECTFUL))
    for job_id, plan in jobs.items():
        job = seen.get(job_id)
        _count_job(found, job_id, job, calls, plan)
        if job is not None:
            found.in_doubt += _doubts(job)
            found.parked += _parked(job, struck, there_s)
            found.settleable += _settleable(job, there_s, names)
    return found


def is_settled(job: JobState | None) -> bool:
    """Whether a job has ended, or has nothing to do but to wait for a human."""
    if job is None:
        return False
    if job.terminal is not None:
        return True
    # a body waits for what its calls wait for
    keys = [key for key in job.keys.values() if not _is_body(job, key.node_id)]
    asks = ("resolve", None) in job.open_waits or any(key.status is KeyStatus.PARKED for key in keys)
    moves = any(
        key.status in (KeyStatus.STARTED, KeyStatus.REOPENED) or key.is_waiting or key.is_asking for key in keys
    )
    return asks and not moves and not _ready(job)


def _is_body(job: JobState, node_id: str) -> bool:
    entry = job.entry(node_id)
    return entry is not None and entry.node.kind is Kind.WORKFLOW


def has_done(job: JobState) -> bool:
    """Whether something of it could be undone."""
    return any(
        key.outcome is Settled.SUCCESS and (entry := job.entry(key.node_id)) is not None and entry.node.compensate_with
        for key in job.keys.values()
    )


def _ready(job: JobState) -> bool:
    """Whether a node could be asked for now; behind a stop only what undoes others is."""
    done = {
        key.node_id for key in job.keys.values() if key.status is KeyStatus.SETTLED and key.outcome is Settled.SUCCESS
    }
    known = {key.node_id for key in job.keys.values() if key.status is not KeyStatus.NONE}
    nodes = [entries[-1].node for entries in job.entries.values()]
    may = [node for node in nodes if job.stopping is None or node.compensates is not None]
    return any(node.id not in known and done.issuperset(dependencies(node)) for node in may)


def _count_job(found: ChaosVerdict, job_id: str, job: ObservedJob | None, calls: Calls, plan: JobPlan) -> None:
    state = job.state if job is not None else None
    if not is_settled(state):
        found.stuck.append(f"{job_id}: {_standing(state)}")
    elif state is not None and isinstance(state.terminal, ev.JobCompleted):
        found.completed += 1
    elif state is not None and isinstance(state.terminal, ev.JobCancelled):
        found.cancelled += 1
    elif state is not None and isinstance(state.terminal, ev.JobFailed) and plan.undone:
        found.undone_jobs += 1
    elif state is not None and state.terminal is not None:
        found.failed.append(f"{job_id}: {state.terminal.event_type}: {getattr(state.terminal, 'error', '')}")
    for effect_class in EFFECTFUL:
        step = tag(plan.number, effect_class)
        keys = calls.get(step, Counter())
        found.observed += bool(keys)
        found.repeats += keys.total() - len(keys) if effect_class is EffectClass.IDEMPOTENT else 0
        _count_effects(found, f"{job_id} {step}", keys, effect_class)
        if not keys and state is not None:
            _count_missing(found, state, step, plan)
        if state is not None:
            _count_undone(found, state, step, calls)


def _count_effects(found: ChaosVerdict, name: str, keys: Counter[str], effect_class: EffectClass) -> None:
    effects = len(keys) if effect_class is EffectClass.IDEMPOTENT else keys.total()
    if effects > 1:
        found.duplicates.append(f"{name}: {effects} effects")


def _count_missing(found: ChaosVerdict, state: JobState, step: str, plan: JobPlan) -> None:
    """A step without an effect: of an ended job it is lost, but where it was called off, or has surely failed."""
    keys = [key for key in state.keys.values() if _tag(state.entry(key.node_id)) == step]
    done = any(key.outcome is Settled.SUCCESS for key in keys)
    off = isinstance(state.terminal, ev.JobCancelled) or (isinstance(state.terminal, ev.JobFailed) and plan.undone)
    never = isinstance(state.terminal, ev.JobFailed) and not keys
    refused = plan.goal is not None and (never or any(key.status is KeyStatus.SETTLED and key.sure for key in keys))
    if (off or refused) and not done:
        found.called_off += 1
    elif done or state.terminal is not None:
        found.lost.append(f"{state.job_id} {step}: {'recorded as done' if done else 'its job ended'} without an effect")
    else:
        found.waiting += 1


def _count_undone(found: ChaosVerdict, state: JobState, step: str, calls: Calls) -> None:
    """What undoes a step: once where the job is undone and the step had succeeded, else never."""
    entry = next((one for entries in state.entries.values() if _tag(one := entries[-1]) == step), None)
    if entry is None or entry.node.compensate_with is None:
        return
    undo, keys = undo_tag(step), calls.get(undo_tag(step), Counter())
    by = state.tools[entry.node.compensate_with.tool].effect_class
    _count_effects(found, f"{state.job_id} {undo}", keys, by)
    settled = state.settled_key(entry.node.id)
    done = settled is not None and settled[1].outcome is Settled.SUCCESS
    ended = isinstance(state.terminal, ev.JobCancelled | ev.JobFailed)
    found.undone += bool(keys)
    found.to_undo += done and (ended or state.entry(undo_id(entry.node.id)) is not None)
    if done and ended and not keys:
        found.lost.append(f"{state.job_id} {undo}: its job ended, and it was not undone")
    elif keys and (not done or isinstance(state.terminal, ev.JobCompleted)):
        found.duplicates.append(f"{state.job_id} {undo}: undone, though nothing was to be")


def _settleable(job: ObservedJob, there_s: Mapping[str, float], names: Names) -> Iterator[str]:
    """Parked steps that the external system's final state and the known ends of workers settle without a human."""
    state = job.state
    for name, key in state.keys.items():
        entry = state.entry(key.node_id)
        if key.status is not KeyStatus.PARKED or entry is None or entry.effect_class is EffectClass.OPAQUE:
            continue
        if entry.effect_class is not EffectClass.PROBEABLE:
            yield f"{state.job_id} {key.node_id}: parked, and may be called again at any time"
            continue
        invocation = key.invocations[key.current_invocation or ""]
        _, parked_s = _open_between(job, name, key.current_invocation or "")
        found_s = there_s.get(invocation.external_key)
        if found_s is not None:
            when = "when it was parked" if found_s <= parked_s else f"{found_s - parked_s:.1f} s later"
            yield f"{state.job_id} {key.node_id}: parked, and its effect is there to be found, since {when}"
        elif _can_act_no_more(state, key, names):
            yield f"{state.job_id} {key.node_id}: parked, its worker has ended, and there is no effect"


def _can_act_no_more(state: JobState, key: KeyState, names: Names) -> bool:
    """Whether all its tries are over, as the job's log or the topic `workers` says."""
    lives = {
        invocation_id: (key.invocations[invocation_id].worker_id, key.invocations[invocation_id].incarnation)
        for invocation_id in key.unresolved
    }
    return all(
        invocation_id in key.returned or life in state.ended_workers or life[1] in names[life[0]].ended
        for invocation_id, life in lives.items()
    )


def _tag(entry: PlanEntry | None) -> Any:
    return entry.node.args.get("tag") if entry is not None else None


def _standing(state: JobState | None) -> str:
    if state is None:
        return "never created"
    keys = ", ".join(f"{key.node_id} {key.status.value}" for key in state.keys.values())
    return keys or "nothing started"


def _doubts(job: ObservedJob) -> Iterator[Doubt]:
    """Each try once, with the first reason that was given."""
    invocations: set[str] = set()
    for _, event in job.events:
        if isinstance(event, ev.InvocationInDoubt) and event.invocation_id not in invocations:
            invocations.add(event.invocation_id)
            state = job.state.keys.get(event.idempotency_key)
            ended = _ended(job, event) if state is not None else "void"
            yield Doubt(job.state.job_id, event.node_id, event.error_class, ended)


def _ended(job: ObservedJob, doubt: ev.InvocationInDoubt) -> str:
    """The last word on that try; a success of its own counts also when it comes late."""
    text = "open"
    for _, event in job.events:
        match event:
            case ev.ToolInvocationFinished(invocation_id=invocation_id) if invocation_id == doubt.invocation_id:
                return f"settled by {event.via.value}" if text != "parked" else f"parked, settled by {event.via.value}"
            case ev.InvocationReopened(invocation_id=invocation_id) if invocation_id == doubt.invocation_id:
                text = f"reopened by {event.by}"
            case ev.InvocationParked(invocation_id=invocation_id) if invocation_id == doubt.invocation_id:
                text = "parked"
            case _:
                pass
    return text


def _parked(job: ObservedJob, struck: Sequence[Struck], there_s: Mapping[str, float]) -> Iterator[Parked]:
    for key, state in job.state.keys.items():
        if state.status is KeyStatus.PARKED:
            reason = state.parked_because or ""
            cause = _cause(job, key, state, struck) or _slowness(job, key, state, there_s)
            yield Parked(job.state.job_id, state.node_id, reason, cause)


def _cause(job: ObservedJob, key: str, state: KeyState, struck: Sequence[Struck]) -> str | None:
    """The fault that hit the parked try while it was open; a probeable one parks only if it may still act."""
    invocation = state.invocations[state.current_invocation or ""]
    entry = job.state.entry(state.node_id)
    if entry is not None and entry.effect_class is EffectClass.PROBEABLE:
        ended = (invocation.worker_id, invocation.incarnation) in job.state.gone
        known = ended or state.current_invocation in state.returned
        return None if known else "its worker is not known to have ended"
    begun_s, parked_s = _open_between(job, key, state.current_invocation or "")
    hits = [
        one
        for one in struck
        if one.left_out is None
        and _reaches(one, process_of(invocation.worker_id))
        and one.begun_s <= parked_s + SLACK_S
        and (one.ended_s is None or one.ended_s >= begun_s - SLACK_S)
    ]
    if not hits:
        return None
    likeliest = max(hits, key=lambda one: (one.target == process_of(invocation.worker_id), one.fault.number))
    return f"{likeliest.fault.number} {likeliest.fault.kind.value} {likeliest.target}".rstrip()


def _slowness(job: ObservedJob, key: str, state: KeyState, there_s: Mapping[str, float]) -> str | None:
    """A machine that is too busy is a fault of nobody's: the request itself took most of the call's time to arrive."""
    entry = job.state.entry(state.node_id)
    found_s = there_s.get(state.invocations[state.current_invocation or ""].external_key)
    if found_s is None or entry is None or entry.effect_class is not EffectClass.OPAQUE:
        return None
    took_s = found_s - _open_between(job, key, state.current_invocation or "")[0]
    return f"a busy machine: its request arrived after {took_s:.1f} s" if took_s > TIMEOUT_S / 2 else None


def _open_between(job: ObservedJob, key: str, invocation_id: str) -> tuple[float, float]:
    """When the try's start was read, and when its park."""
    begun_s = parked_s = 0.0
    for at_s, event in job.events:
        if isinstance(event, ev.ToolInvocationStarted) and event.invocation_id == invocation_id:
            begun_s = at_s
        if isinstance(event, ev.InvocationParked) and event.idempotency_key == key:
            parked_s = at_s
    return begun_s, parked_s


def _reaches(struck: Struck, process: str) -> bool:
    """Whether such a fault can part a call of that worker from its report."""
    kind = struck.fault.kind
    return kind in _OF_ANY_CALL or (kind in _OF_ITS_OWN_CALLS and struck.target == process)
