"""How a job and its steps stand, from the job's fold."""

from collections.abc import Iterator
from typing import Any, cast

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.revisions import unsure
from aetheris.protocol.fold.start import frozen_by, is_stopped, tools_held
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.plan.graph import EffectClass, dependencies
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.confirmation import unanswered
from aetheris.protocol.planning.contract import ContractStatus
from aetheris.protocol.planning.outcome import step_status
from aetheris.views.failure import failure_in_words, unknown
from aetheris.views.related_jobs import related_view

_SHOWN = 5
"""Calls that are named, of many."""


def job_view(job: JobState, created_at: str) -> dict[str, Any]:
    """What GET /jobs/{id} answers, from the job's fold."""
    view: dict[str, Any] = {
        "job_id": job.job_id,
        "status": job_status(job),
        "created_at": created_at,
        "submitted_by": job.created.submitted_by,
        "tenant": job.created.tenant,
        "steps": [step_view(job, entries[-1]) for entries in job.entries.values()],
    }
    if job.created.labels:
        view["labels"] = dict(job.created.labels)
    if job.created.goal is not None:
        view["goal"] = job.created.goal
    if job.created.continues is not None:
        earlier = job.created.continues
        view["continues"] = {"job_id": earlier.job_id, "adopted": [one.node_id for one in earlier.adopted]}
    view |= related_view(job)
    why = _why(job)
    if why is not None:
        view["why"] = why
    if job.paused is not None:
        view["paused"] = pause_view(job.paused)
    if job.frozen:
        view["frozen"] = [freeze_view(freeze) for freeze in job.frozen.values()]
    if isinstance(job.terminal, ev.JobCompleted):
        view["result"] = job.terminal.result
    if isinstance(job.terminal, ev.JobFailed):
        view["error"] = job.terminal.error
    if isinstance(job.terminal, ev.JobFailed | ev.JobCancelled) and job.terminal.compensated:
        view["compensated"] = list(job.terminal.compensated)
    return view


def job_status(job: JobState) -> str:
    """running, waiting, paused, frozen, needs_upgrade, stopping, compensating, cancelling, or how it ended."""
    if job.terminal is not None:
        return job.terminal.event_type.removeprefix("job_")
    if job.needs_upgrade:
        return "needs_upgrade"
    if job.paused is not None:
        return "paused"
    if is_frozen(job):
        return "frozen"
    if _waits(job):
        return "waiting"
    if job.compensations:
        return "compensating"
    if job.cancel is not None:
        return "cancelling"
    return "stopping" if job.stopping is not None else "running"


def pause_view(pause: ev.JobPaused) -> dict[str, Any]:
    """Who paused a job, and why."""
    return {"number": pause.number, "by": pause.by, "reason": pause.reason}


def is_frozen(job: JobState) -> bool:
    """Whether a freeze keeps everything of the job from starting, not only one tool's calls."""
    return frozen_by(job, None) is not None


def freeze_view(freeze: ev.JobFrozen) -> dict[str, Any]:
    """What is frozen, by whom, since when, and why."""
    scope = freeze.scope.model_dump(exclude_none=True)
    return {**scope, "number": freeze.number, "by": freeze.by, "at": freeze.at, "reason": freeze.reason}


def to_start(job: JobState) -> Iterator[tuple[str, str]]:
    """(node_id, tool) of the calls that would be started next: nothing of the plan keeps them."""
    if job.terminal is not None or job.paused is not None:
        return
    for entries in job.entries.values():
        node, found = entries[-1].node, _counting_key(job, entries[-1].node.id)
        if node.tool is None or node.id in job.finished or is_stopped(job, entries[-1]):
            continue
        if frozen_by(job, *tools_held(job, entries[-1])) is not None:
            continue
        untouched = found is None or (
            found[1].status in (KeyStatus.NONE, KeyStatus.REOPENED) and not found[1].is_asking
        )
        if untouched and all(earlier in job.finished for earlier in dependencies(node)):
            yield node.id, node.tool


def opened_by(job: JobState, worker_id: str) -> list[dict[str, Any]]:
    """The calls of a job that a worker has declared, and that nobody has settled."""
    return [
        {
            "job_id": job.job_id,
            "node_id": state.node_id,
            "tool": state.started.tool_name if state.started is not None else None,
            "state": state.status.value,
            "incarnation": state.invocations[invocation_id].incarnation,
        }
        for state in job.keys.values()
        if state.status is not KeyStatus.SETTLED
        for invocation_id in sorted(state.unresolved)
        if state.invocations[invocation_id].worker_id == worker_id
    ]


def step_view(job: JobState, entry: PlanEntry) -> dict[str, Any]:
    """Where one step stands."""
    node = entry.node
    step: dict[str, Any] = {
        "node_id": node.id,
        "tool": node.tool_name,
        "state": ContractStatus.PENDING.value,
        "attempts": 0,
    }
    found = _counting_key(job, node.id)
    finished = job.finished.get(node.id)
    if found is not None:
        key, state = found
        step["state"] = step_status(state, over=job.terminal is not None).value
        step["attempts"] = state.invocation_count
        step["execution_id"] = execution_id(job.job_id, node.id, key)
        step["external_id"] = state.external_id
        step["request_id"] = request_id(job.job_id, node.id, key, state.asks) if _asks(job, entry, state) else None
        step["reason"] = state.parked_because if state.status is KeyStatus.PARKED else state.reason
        step["via"] = state.via.value if state.via is not None else None
    if finished is not None:
        step["result_type"] = finished.result_type
        step["reason"] = finished.reason or step.get("reason")
    step["compensates"] = node.compensates
    step["depends_on"] = list(dependencies(node)) or None
    step["parent"] = entry.call.parent if entry.call is not None else None
    step["effect"] = _effect(job, entry)
    return {name: value for name, value in step.items() if value is not None}


def _asks(job: JobState, entry: PlanEntry, state: KeyState) -> bool:
    """Whether a human may answer: the call waits for his approval, or the step is a form."""
    is_form = state.is_waiting and state.waits_for is not None and state.waits_for.form is not None
    return (state.is_asking or is_form) and job.terminal is None and not is_stopped(job, entry)


def _effect(job: JobState, entry: PlanEntry) -> str | None:
    """none, confirmed or possible; None for what leaves no effect anywhere."""
    if entry.effect_class is EffectClass.PURE:
        return None
    states = [job.keys[key] for key in job.node_keys.get(entry.node.id, ())]
    if any(state.outcome is Settled.SUCCESS or state.alarms for state in states):
        return "confirmed"
    return "possible" if any(state.unresolved and not (state.outcome and state.sure) for state in states) else "none"


def _counting_key(job: JobState, node_id: str) -> tuple[str, KeyState] | None:
    """The node's key that stands for it: the settled one that counts, else the newest."""
    settled = job.settled_key(node_id)
    if settled is not None:
        return settled
    keys = job.node_keys.get(node_id)
    return (keys[-1], job.keys[keys[-1]]) if keys else None


def _why(job: JobState) -> str | None:
    """Why a job that has not ended does not go on, or why it failed; of one that completed, what is not known of it."""
    if job.terminal is not None:
        return failure_in_words(job) or unknown(job)
    if job.needs_upgrade:
        return f"its log holds an event of a newer version: upgrade the services. {job.unread or ''}".rstrip()
    if job.paused is not None:
        return f"paused by {job.paused.by}" + (f": {job.paused.reason}" if job.paused.reason else "")
    frozen = frozen_by(job, None)
    if frozen is not None:
        return _frozen_in_words(frozen)
    parked = _parked(job)
    if parked is not None:
        return _parted_in_words(parked) or (
            f"{parked.node_id} is parked ({parked.parked_because}): whether it took effect is not known. "
            "Resolve it with evidence: happened, not_executed or retry"
        )
    doubted = next((state for state in job.keys.values() if state.status is KeyStatus.STARTED and state.in_doubt), None)
    if doubted is not None:
        return f"{doubted.node_id} is in doubt ({doubted.in_doubt}): whether it took effect is being found out"
    if ("resolve", None) in job.open_waits:
        return (
            f"{unsure(job)} failed without being sure, so nothing is undone by itself: "
            "cancel the job, with or without compensation"
        )
    asked = job.open_waits.get(("confirmation", None))
    if asked is not None:
        return f"what it did could not be confirmed; to go on all the same: signal {asked.correlation_key}"
    open_question = next(iter(unanswered(job)), None)
    if open_question is not None:
        return str(open_question)
    held = next((freeze for freeze in job.frozen.values()), None)
    if held is not None:
        return _frozen_in_words(held)
    if job.waiting is not None and job.waiting.wait_type == "duplicate":
        return f"{job.waiting.node_id} waits for an equal call that is under way: {job.waiting.correlation_key}"
    if job.waiting is not None and job.waiting.wait_type == "executor":
        return _for_executor(job.waiting)
    if job.waiting is not None:
        node = f"{job.waiting.node_id} waits" if job.waiting.node_id else "waits"
        until = f" until {job.waiting.due_at}" if job.waiting.due_at is not None else ""
        return f"{node} for {job.waiting.wait_type}{until}"
    return f"stopping: {job.stopping.reason}" if job.stopping is not None else None


def _for_executor(waiting: ev.JobWaiting) -> str:
    """What to do about a call that no executor serves."""
    needed = (waiting.correlation_key or "").partition("#")[0]
    if needed.startswith("model:"):
        return (
            f"{waiting.node_id} waits: no executor asks {needed}. Start one whose AETHERIS_MODELS names it, or cancel"
        )
    return (
        f"{waiting.node_id} waits: no executor serves {needed}. "
        "Start one whose AETHERIS_TOOLS names the module that has it in just this version, or cancel the job"
    )


def _parted_in_words(parked: KeyState) -> str | None:
    """Of a workflow whose code has parted from what is recorded: by which calls, and which code; None of all else."""
    found = parked.parked.evidence if parked.parked is not None else ()
    said = next((one for one in found if isinstance(one, dict) and ("unasked" in one or "changed" in one)), None)
    if said is None:
        return None
    evidence = cast("dict[str, Any]", said)
    unasked, held, changed = (_named(evidence.get(name)) for name in ("unasked", "held", "changed"))
    before, now = _code(evidence.get("recorded_code")), _code(evidence.get("code"))
    if changed:
        how = f"asks for {changed} with other arguments than are recorded"
    else:
        how = f"asks for {held or 'its end'}, and has not asked for {unasked}, which is recorded"
    return (
        f"{parked.node_id} is parked ({parked.parked_because}): its code {now} {how} of code {before}. "
        "Resolve it: retry, with the code that was there before or with accept_code; or not_executed"
    )


def _named(what: Any) -> str:
    names = cast("list[Any]", what) if isinstance(what, list) else [what]
    shown = [one for one in names if isinstance(one, str)]
    return ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")


def _code(said: Any) -> str:
    """version and hash, as `accept_code` wants it."""
    code = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    return f"{code.get('version', '?')} ({code.get('hash', '?')})"


def _frozen_in_words(freeze: ev.JobFrozen) -> str:
    reason = f": {freeze.reason}" if freeze.reason else ""
    return f"{freeze.scope} is frozen by {freeze.by} since {freeze.at}{reason}"


def _waits(job: JobState) -> bool:
    """Whether it goes on only when something comes, and nothing else of it runs; code only waits for its calls."""
    bodies = {body.key for body in job.bodies.of.values()} if job.bodies is not None else frozenset[str]()
    if any(
        state.status in (KeyStatus.STARTED, KeyStatus.REOPENED) and not state.is_asking and key not in bodies
        for key, state in job.keys.items()
    ):
        return False
    return bool(job.open_waits) or _parked(job) is not None


def _parked(job: JobState) -> KeyState | None:
    return next((state for state in job.keys.values() if state.status is KeyStatus.PARKED), None)
