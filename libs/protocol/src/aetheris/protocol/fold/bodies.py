"""Who is the body of a node, and what follows from that (docs/guarantees.md, "Calls of a body").

A body is code that runs, and dies, and runs again elsewhere, each time under another invocation_id. Whatever it does
outside it does by calls that it plans. What must not be is a call that starts for a body which is no longer it, and a
second path of calls beside the first.
"""

from aetheris.protocol.base.child_ids import frontier, weight
from aetheris.protocol.fold.state import BodyState, JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.begun import is_end_key
from aetheris.protocol.messages.event_base import Event
from aetheris.protocol.messages.event_values import Outcome, Via
from aetheris.protocol.plan.graph import EffectClass

MAX_SIGNALS = 1_000
"""Keys of signals of a job that are kept although nothing waits for them yet."""

_OWN = frozenset({Via.EXECUTOR, Via.LATE, Via.CATCH_UP})


def body_in_charge(job: JobState, parent: str, invocation_id: str | None) -> BodyState | None:
    """The body of a node, if it is this one, and it runs; None where another is in charge, or nobody."""
    body = _body(job, parent)
    if body is None or invocation_id is None or body.invocation_id != invocation_id:
        return None
    return body if job.keys[body.key].status is KeyStatus.STARTED else None


def may_start_first(job: JobState, parent: str, invocation_id: str | None) -> bool:
    """Whether what this body has planned may start: it runs, or it sleeps or is in doubt, and no other has begun."""
    body = _body(job, parent)
    if body is None or invocation_id is None or body.invocation_id != invocation_id:
        return False
    return job.keys[body.key].status in (KeyStatus.STARTED, KeyStatus.REOPENED)


def has_asked(body: BodyState, said: str | None) -> bool:
    """Whether a body has asked for all that was recorded when it began: it has said so before, or says so now."""
    return body.has_asked or said == frontier(body.expected)


def note_start(job: JobState, entry: PlanEntry, e: ev.ToolInvocationStarted) -> None:
    """What a `started` that counts changes for bodies: another has begun, or a call of one is recorded."""
    body = _body(job, e.node_id)
    if body is not None:
        _begin(job, body, e)
    elif entry.call is not None and len(job.keys[e.idempotency_key].invocations) == 1:
        of = _body(job, entry.call.parent)
        if of is not None:
            adds = 0 if entry.effect_class is EffectClass.PURE else weight(e.node_id)
            of.recorded += adds
            of.unsettled.append((e.idempotency_key, adds))


def may_end(job: JobState, e: ev.ToolInvocationFinished) -> bool:
    """Whether an end may count for all that is asked of bodies.

    A body settles when none of its calls is open, by its own word only while it is in charge, and only if it has asked
    for what was recorded when it began.
    """
    body = _body(job, e.node_id)
    if body is None or e.outcome is Outcome.RETRYABLE:
        return True
    if has_open_calls(job, e.node_id):
        return False
    if e.via not in _OWN:
        return True
    return body_in_charge(job, e.node_id, e.invocation_id) is not None and has_asked(body, e.frontier)


def has_open_calls(job: JobState, node_id: str) -> bool:
    """Whether calls of a node's body have started and not settled."""
    body = _body(job, node_id)
    if body is None:
        return False
    while body.unsettled and _is_settled(job, *body.unsettled[-1], body):
        body.unsettled.pop()
    return bool(body.unsettled)


def expected_calls(job: JobState, node_id: str) -> frozenset[str]:
    """Right behind the start of a node's body: the calls that it must ask for before anything new."""
    body = _body(job, node_id)
    state = job.keys.get(body.key) if body is not None else None
    if body is None or state is None:
        return frozenset()
    code = state.started.code if state.started is not None else None
    waived = body.waived.get(code.hash, frozenset[str]()) if code is not None else frozenset[str]()
    return frozenset(one for one in job.entries if one not in waived and _is_recorded(job, one, node_id))


def ended_call(job: JobState, event: Event) -> tuple[str, KeyState] | None:
    """The call of a body about which an event speaks that was just folded, where it has ended; its node and key."""
    node_id = getattr(event, "node_id", None)
    entry = job.entry(node_id) if isinstance(node_id, str) else None
    state = job.keys.get(entry.call.key) if entry is not None and entry.call is not None else None
    if entry is None or state is None or state.status is not KeyStatus.SETTLED:
        return None
    return entry.node.id, state


def may_await(job: JobState) -> bool:
    """Whether a body may still ask for a signal that nothing waits for yet."""
    bodies = job.bodies
    return bodies is not None and any(job.settled_key(node_id) is None for node_id in bodies.of)


def keeps_signal(job: JobState) -> bool:
    """Whether one more signal that nothing waits for yet is kept; how child jobs have ended takes no room of it."""
    few = len(job.signals) < MAX_SIGNALS
    return few or sum(not is_end_key(key) for key in job.signals) < MAX_SIGNALS


def workflow_accepted(job: JobState, e: ev.WorkflowAccepted, offset: int) -> bool:
    """Of a parked body: those calls that are recorded need not be asked for by this code when it starts again."""
    body, state = _body(job, e.node_id), job.keys.get(e.idempotency_key)
    if body is None or state is None or state.node_id != e.node_id or state.status is not KeyStatus.PARKED:
        return False
    if state.current_invocation != e.invocation_id:
        return False
    waived = frozenset(node_id for node_id in e.waives if _is_recorded(job, node_id, e.node_id))
    body.waived[e.code_hash] = body.waived.get(e.code_hash, frozenset()) | waived
    return True


def _begin(job: JobState, body: BodyState, e: ev.ToolInvocationStarted) -> None:
    body.unsettled = [one for one in body.unsettled if not _is_settled(job, *one, body)]
    waived = body.waived.get(e.code.hash, ()) if e.code is not None else ()
    still = sum(weight(node_id) for node_id in waived if _is_recorded(job, node_id, e.node_id))
    body.key, body.invocation_id = e.idempotency_key, e.invocation_id
    body.expected, body.has_asked, body.next_word = body.recorded - still, False, e.plans


def _is_settled(job: JobState, key: str, adds: int, body: BodyState) -> bool:
    state = job.keys[key]
    if state.status is not KeyStatus.SETTLED:
        return False
    if _surely_failed(state):
        body.recorded -= adds
    return True


def _surely_failed(state: KeyState) -> bool:
    return state.status is KeyStatus.SETTLED and state.outcome is not Settled.SUCCESS and state.sure


def _is_recorded(job: JobState, node_id: str, parent: str) -> bool:
    entry = job.entry(node_id)
    if entry is None or entry.call is None or entry.call.parent != parent or entry.effect_class is EffectClass.PURE:
        return False
    states = [job.keys[key] for key in job.node_keys.get(node_id, ())]
    return any(state.invocations and not _surely_failed(state) for state in states)


def _body(job: JobState, node_id: str) -> BodyState | None:
    return job.bodies.of.get(node_id) if job.bodies is not None else None
