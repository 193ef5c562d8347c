"""A job goes on: what its next calls build on is compared with the external system first (docs/confirmation.md).

Pure. A job that never waited, and whose services were never all gone, has nothing to confirm, and costs nothing.
"""

from collections.abc import Container, Iterable, Iterator

from aetheris.ledger.core import settlement
from aetheris.ledger.core.decisions import Confirm, Decision, Emit, IdentifiedEvent, Now
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob, Resumed, TimedDecision, WorkerLife
from aetheris.ledger.core.settlement import JobKey, written
from aetheris.protocol.fold.state import JobState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Signal, Verification
from aetheris.protocol.messages.event_values import RejectReason, WaitType
from aetheris.protocol.plan.graph import Confirmation, dependencies
from aetheris.protocol.planning.approvals import deciders_of, may_not_accept, recorded, resolvers
from aetheris.protocol.planning.confirmation import Tally
from aetheris.protocol.planning.invocation import has_hidden

LONGEST_PAUSE_S = 60.0
WAIT: WaitType = "confirmation"
UNANSWERED: WaitType = "verifier"
"""The wait for a verifier that has left a question without an answer; what is answered in time is no wait."""


def resumed(job: LiveJob, offset: int, context: DecisionContext) -> None:
    """The job goes on again from the event at `offset`: what it did so far is to be confirmed, as it is needed."""
    if not _has_verifiers(job.state, context):  # so that nothing is looked at in each step of a long job
        job.resumed = None
        return
    open_effects = {key for key, _ in _comparable(job.state, job.state.keys, context)}
    job.resumed = Resumed(offset, open_effects) if open_effects else None


def taken_up(job: LiveJob, offset: int, context: DecisionContext, ended: Container[WorkerLife]) -> None:
    """The job was read from the log up to `offset`: what ended workers did is to be confirmed, too."""
    lost = {key for key, life in _comparable(job.state, job.state.keys, context) if life in ended}
    if lost:
        before = job.resumed
        job.resumed = Resumed(offset, lost | before.open | before.failed if before is not None else lost)


def builds_on(job: JobState, nodes: Iterable[str], context: DecisionContext) -> bool:
    """Whether nodes build on what the external system can be asked about."""
    if not _has_verifiers(job, context):
        return False
    return next(_comparable(job, _needed(job, nodes), context), None) is not None


def _has_verifiers(job: JobState, context: DecisionContext) -> bool:
    return any(context.verifies(name, pin.version) for name, pin in job.tools.items())


def observe(
    job: LiveJob, answer: ev.EffectConfirmed | ev.ConfirmationFailed, context: DecisionContext, now: Now
) -> bool:
    """Take an answer; whether it is one that a call may wait for."""
    found = job.resumed
    if found is None or not answer.ask.startswith(f"{found.offset}.") or answer.idempotency_key not in found.open:
        return False
    verdict = found.tallies.setdefault(answer.ask, Tally()).take(answer)
    if verdict is None:
        return False
    key, count = answer.idempotency_key, int(answer.ask.split(".")[1])
    found.asked.pop(key, None)
    if verdict == "unknown" and count < context.limits.probe_tries:
        pause_s = min(LONGEST_PAUSE_S, context.limits.probe_backoff_s * 2 ** (count - 1))
        found.again[key] = (count, now.mono_s + pause_s)
        return True
    found.open.discard(key)
    if verdict != "confirmed":
        found.failed.add(key)
    return True


def nothing_changed(job: LiveJob, key: str) -> None:
    """The call recorded no change of a resource: there is nothing to compare."""
    if job.resumed is not None:
        job.resumed.open.discard(key)
        job.resumed.asked.pop(key, None)


def hold(
    job: LiveJob, job_key: JobKey, nodes: Iterable[str], context: DecisionContext, now: Now
) -> TimedDecision | None:
    """What is done before these nodes may run; None where nothing keeps them."""
    found, needed = job.resumed, _needed(job.state, nodes)
    asking = sorted(needed & found.open) if found is not None else []
    if found is not None and asking:
        reported = _report_unanswered(job.state, job_key, found, asking, now)
        step = _ask(job, found, asking, context, now)
        return TimedDecision([*reported, *step.decisions], step.due_s)
    unanswered = job.state.open_waits.get((UNANSWERED, job_key.state.node_id))
    if unanswered is not None:
        return TimedDecision(
            (settlement.emit(job_key, _answered(job_key, unanswered)),), now.mono_s + context.limits.lease_ttl_s
        )
    if found is None:
        return None
    failed = needed & found.failed
    mode = mode_of(job.state)
    if not failed or mode == "warn":
        return None
    again_s = now.mono_s + context.limits.lease_ttl_s
    if mode == "strict":
        return TimedDecision((_refused(job_key, job.state, failed),), again_s)
    waits = (WAIT, None) in job.state.open_waits
    return TimedDecision(() if waits else (_asked_human(job.state, found, failed),), again_s)


def mode_of(job: JobState) -> Confirmation:
    """The job's option; strict where it says nothing."""
    options = job.created.options
    return (options.confirmation if options is not None else None) or "strict"


def awaits(job: JobState, command: Signal) -> bool:
    """Whether a signal is the human's word on what could not be confirmed."""
    waiting = job.open_waits.get((WAIT, None))
    return waiting is not None and waiting.correlation_key == command.correlation_key


def may_accept(job: JobState, command: Signal) -> bool:
    """Whether he is the one to say it."""
    waiting, created = job.open_waits[WAIT, None], job.created
    return may_not_accept(waiting, created, command.speaker) is None


def accepted(job: JobState, command: Signal, command_id: str) -> ev.WaitCompleted:
    """A human lets the job go on as it is."""
    return ev.WaitCompleted(
        job_id=job.job_id,
        caused_by=command_id,
        wait_type=WAIT,
        correlation_key=command.correlation_key,
        payload=command.payload,
        command_id=command_id,
        by=command.by,
        principal=command.recorded_principal,
    )


def asked(job: LiveJob, waiting: ev.JobWaiting) -> None:
    """Somebody is asked to let pass what failed, as far as it is his to decide."""
    job.accepting = deciders_of(waiting)


def accept(job: LiveJob) -> None:
    """What a human has let pass keeps nothing any more, until the job has waited again; only what was his to decide."""
    found = job.resumed
    if found is not None:
        found.failed = {key for key in found.failed if resolvers(job.state, job.state.keys[key]) != job.accepting}


def _comparable(job: JobState, keys: Iterable[str], context: DecisionContext) -> Iterator[tuple[str, WorkerLife]]:
    """Of these keys those that took effect by a tool with a verifier, and the lives of the workers that did it."""
    for key in keys:
        state = job.keys[key]
        started = state.started
        if state.status is not KeyStatus.SETTLED or state.outcome is not Settled.SUCCESS or started is None:
            continue
        if context.verifies(started.tool_name, started.tool_version):
            invocation = state.invocations.get(state.settled_by or "")
            yield key, (invocation.worker_id, invocation.incarnation) if invocation is not None else ("", "")


def _needed(job: JobState, nodes: Iterable[str]) -> set[str]:
    """The settled keys that nodes depend on, or refer to."""
    needed: set[str] = set()
    for node_id in nodes:
        entry = job.entry(node_id)
        for name in dependencies(entry.node) if entry is not None else ():
            settled = job.settled_key(name)
            if settled is not None:
                needed.add(settled[0])
    return needed


def _ask(job: LiveJob, found: Resumed, keys: Iterable[str], context: DecisionContext, now: Now) -> TimedDecision:
    decisions: list[Decision] = []
    due_s = float("inf")
    for key in keys:
        count, not_before_s = found.again.get(key, (0, 0.0))
        waits_until_s = found.asked.get(key, not_before_s)
        if waits_until_s <= now.mono_s:
            found.since.setdefault(key, now.wall.isoformat())
            decisions.append(Confirm(_question(job.state, found, key, count + 1)))
            found.again[key] = (count + 1, now.mono_s)
            waits_until_s = found.asked[key] = now.mono_s + context.limits.probe_wait_s
        due_s = min(due_s, waits_until_s)
    return TimedDecision(decisions, due_s)


def _report_unanswered(
    job: JobState, job_key: JobKey, found: Resumed, asking: Iterable[str], now: Now
) -> list[Decision]:
    """In the log once a question was worth waiting for no longer: people see what the job waits for."""
    late = next((key for key in asking if found.asked.get(key, float("inf")) <= now.mono_s), None)
    if late is None or (UNANSWERED, job_key.state.node_id) in job.open_waits:
        return []
    named = f"{found.offset}.{job.keys[late].node_id}"
    if (UNANSWERED, job_key.state.node_id, named) in job.waits:
        return []
    waiting = ev.JobWaiting(
        job_id=job.job_id,
        wait_type=UNANSWERED,
        node_id=job_key.state.node_id,
        correlation_key=named,
        since=found.since.get(late),
    )
    return [settlement.emit(job_key, written(waiting, job_key.key, UNANSWERED, named))]


def _answered(job_key: JobKey, waiting: ev.JobWaiting) -> IdentifiedEvent:
    """The question has an answer, or nobody has to ask it any more."""
    over = ev.WaitCompleted(
        job_id=job_key.job.job_id,
        wait_type=UNANSWERED,
        node_id=waiting.node_id,
        correlation_key=waiting.correlation_key,
    )
    return written(over, job_key.key, UNANSWERED, waiting.correlation_key or "")


def _question(job: JobState, found: Resumed, key: str, number: int) -> Verification:
    """Without the resources: they are read from the log where it is sent."""
    state = job.keys[key]
    started = state.started
    if started is None:
        raise LookupError("a call that took effect was started")
    return Verification(
        job_id=job.job_id,
        birth=job.creation_offset,
        node_id=state.node_id,
        idempotency_key=key,
        invocation_id=state.settled_by or started.invocation_id,
        external_key=started.external_key,
        tool_name=started.tool_name,
        tool_version=started.tool_version,
        ask=f"{found.offset}.{number}.{key}",
        what="confirm",
        mode=mode_of(job),
        hidden=has_hidden(job, state.node_id),
    )


def _refused(job_key: JobKey, job: JobState, failed: Iterable[str]) -> Emit:
    nodes = ", ".join(sorted(job.keys[key].node_id for key in failed))
    detail = f"the external system does not bear out what {nodes} did"
    if job_key.state.status is KeyStatus.REOPENED:
        return settlement.failed(job_key, f"{RejectReason.CONFIRMATION.value}: {detail}")
    return settlement.rejected(job_key, RejectReason.CONFIRMATION, detail)


def _asked_human(job: JobState, found: Resumed, failed: Iterable[str]) -> Emit:
    """Who decides about such calls is asked; where two rules name others, one after the other."""
    whom = resolvers(job, job.keys[min(failed)])
    key = f"confirm-{found.offset}"
    earlier = sum(named == key or str(named).startswith(f"{key}-") for _, _, named in job.waits)
    key = f"{key}-{earlier + 1}" if earlier else key
    event = ev.JobWaiting(job_id=job.job_id, wait_type=WAIT, correlation_key=key, **recorded(whom))
    return Emit(job.job_id, (written(event, key),))
