"""Histories of a job with a body: node `p`, whose code plans calls of `act`, `pay` and `read`."""

from collections.abc import Iterable
from typing import Any

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.child_ids import NOTHING_RECORDED, child_id, frontier, weight
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.words import CallWords
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import After, CodeVersion
from tests.testkit.histories import JOB, about, finished, fold, graph, key_of, planned, started
from tests.testkit.tries import secret_of, try_of

PARENT = "p"
MOST_CALLS = 50
_NAMED: dict[str, str] = {}
"""A body's invocation_id → its short name."""
GRAPH = graph(
    {"id": PARENT, "kind": "workflow", "tool": "flow"},
    {"id": "q", "depends_on": [PARENT]},
    flow={"effect_class": "pure"},
    act={"effect_class": "idempotent"},
    pay={"effect_class": "opaque", "irreversible": True},
    read={"effect_class": "pure"},
)


def with_bodies(task_graph: dict[str, Any], revision: int = 0) -> ev.PlanGenerated:
    """A plan of version 2."""
    return planned(task_graph, revision).model_copy(update={"bodies": True})


FLOW = with_bodies(GRAPH)


_OF_CALLS: dict[str, tuple[str, int]] = {}
"""What a word's hash is → the body by its name, and the number of the call that has the word."""


def words(name: str) -> CallWords:
    """The words of a body's calls."""
    chain = CallWords.of(secret_of(name), MOST_CALLS)
    _OF_CALLS[chain.plans] = (name, 0)
    for number in range(MOST_CALLS - 1):
        _OF_CALLS[chain.word(number)] = (name, number + 1)
    return chain


def worded(job: JobState, event: ev.Event) -> ev.Event:
    """A body's call without a word has the next that the body has."""
    by = _NAMED.get(event.invocation_id) if isinstance(event, ev.CallPlanned) and event.word is None else None
    if by is None or not isinstance(event, ev.CallPlanned):
        return event
    of = job.bodies.of.get(event.parent) if job.bodies is not None else None
    name, number = _OF_CALLS.get((of.next_word if of is not None else None) or "", ("", 0))
    return event.model_copy(update={"word": words(by).word(number if name == by else 0)})


def take(job: JobState, event: ev.Event, offset: int = 99) -> bool:
    """Fold one more, with a word where it needs one."""
    return apply(job, worded(job, event), offset)


def fold_bodies(*events: ev.Event) -> JobState:
    """As `fold`, with the words of bodies' calls."""
    job = fold()
    for offset, event in enumerate(events, start=1):
        take(job, event, offset)
    return job


def asked(*node_ids: str) -> str:
    """The frontier of who has asked for these."""
    return frontier(sum(map(weight, node_ids)))


def named(args: dict[str, Any] | None = None, tool: str = "act", occurrence: int = 1, parent: str = PARENT) -> str:
    """The id of a call by its content."""
    return child_id(parent, tool, args or {}, occurrence)


def body(name: str, token: int = 1, *, attempt: int = 0, code: str | None = None) -> ev.ToolInvocationStarted:
    """A body begins."""
    version = CodeVersion(ref="shop:flow", version="1", hash=code) if code is not None else None
    start = started(PARENT, name, tool="flow", token=token, attempt=attempt)
    return start.model_copy(update={"code": version, "plans": words(name).plans})


def call(
    by: str,
    args: dict[str, Any] | None = None,
    tool: str | None = "act",
    *,
    occurrence: int = 1,
    node: str | None = None,
    said: str | None = NOTHING_RECORDED,
    after: Iterable[After] = (),
    parent: str = PARENT,
    made: dict[str, Any] | None = None,
    **entry: Any,
) -> ev.CallPlanned:
    """A body plans a call; `made`: its arguments, with the results that they refer to."""
    node_id = node or named(args, tool or "", occurrence, parent)
    says = {"id": node_id, "kind": "tool", "tool": tool, "args": args or {}, "occurrence": occurrence} | entry
    _NAMED[try_of(by)] = by
    built_on = tuple(one.model_copy(update={"invocation_id": try_of(one.invocation_id)}) for one in after)
    return ev.CallPlanned(
        job_id=JOB,
        node_id=node_id,
        parent=parent,
        invocation_id=try_of(by),
        entry={name: value for name, value in says.items() if value is not None},
        frontier=said,
        after=built_on,
        call_key=key_of(node_id, made, tool or str(entry.get("kind", ""))) if made is not None else None,
        args_hash=args_hash(made) if made is not None else None,
    )


def given(place: str, node: str | None = None, args: dict[str, Any] | None = None) -> dict[str, Any]:
    """In the arguments of a call: a place in what another has returned, by its id or by its arguments."""
    return {"$ref": f"{node or named(args)}#{place}"}


def first(
    by: str | None,
    name: str,
    args: dict[str, Any] | None = None,
    tool: str = "act",
    *,
    node: str | None = None,
    occurrence: int = 1,
    **fields: Any,
) -> ev.ToolInvocationStarted:
    """A planned call starts for the first time; `by` None: whoever grants it says nothing of a body."""
    node_id = node or named(args, tool, occurrence)
    start = started(node_id, name, args=args, tool=tool, occurrence=occurrence, **fields)
    return start.model_copy(update={"parent_invocation": try_of(by) if by is not None else None})


def ended(
    name: str,
    args: dict[str, Any] | None = None,
    tool: str = "act",
    *,
    node: str | None = None,
    occurrence: int = 1,
    outcome: str = "success",
    **fields: Any,
) -> ev.ToolInvocationFinished:
    """A planned call ends."""
    return finished(node or named(args, tool, occurrence), name, outcome, args=args, tool=tool, **fields)


def over(
    name: str,
    outcome: str = "success",
    *,
    said: str | None = None,
    until: Iterable[str] | None = None,
    via: str = "executor",
) -> ev.ToolInvocationFinished:
    """A body ends, or goes to sleep."""
    end = finished(PARENT, name, outcome, tool="flow", via=via)
    return end.model_copy(update={"frontier": said, "until": tuple(until) if until is not None else None})


def pair(args: dict[str, Any], by: str = "b1", name: str = "t1", **fields: Any) -> tuple[ev.Event, ev.Event]:
    """A call is planned and starts."""
    return call(by, args, **fields), first(by, name, args, **{k: v for k, v in fields.items() if k in ("tool", "node")})


def result_of(name: str, result: Any = None) -> After:
    """That a call built on this result."""
    return After(invocation_id=name, result_hash=digest(result))


def reopened(name: str, node: str = PARENT, tool: str = "flow", by: str = "policy", **fields: Any) -> Any:
    return about(ev.InvocationReopened, node, tool=tool, invocation_id=name, next_token=0, by=by, **fields)


def parked(name: str) -> Any:
    return about(ev.InvocationParked, PARENT, tool="flow", invocation_id=name, reason="diverged")


def stopping() -> ev.JobStopping:
    return ev.JobStopping(job_id=JOB, by="ann", reason="r", up_to_revision=0)


def accepted(name: str, code: str, *waives: str) -> Any:
    return about(ev.WorkflowAccepted, PARENT, tool="flow", invocation_id=name, code_hash=code, waives=waives, by="eve")


def taken_over(*events: ev.Event) -> JobState:
    """A body has begun, these have come, and the next one has begun."""
    return fold_bodies(FLOW, body("b1"), *events, reopened("b1"), body("b2", token=2))
