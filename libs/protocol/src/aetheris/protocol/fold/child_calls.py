"""The rule of `call_planned`: which calls a body may plan (docs/guarantees.md, "Calls of a body")."""

import hashlib
import re
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.child_ids import child_id_of_canonical
from aetheris.protocol.base.hidden_values import MARK, by_meaning
from aetheris.protocol.base.keys import canonical_args, key_of_canonical
from aetheris.protocol.base.references import Reference, references
from aetheris.protocol.base.words import is_next_word
from aetheris.protocol.fold.bodies import body_in_charge, has_asked
from aetheris.protocol.fold.start import after_fails, is_stopped
from aetheris.protocol.fold.state import Bodies, JobState, KeyStatus, PlanEntry, PlannedCall, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.plan.graph import (
    OWN_TOOLS,
    EffectClass,
    InvalidPlan,
    Kind,
    Node,
    check_graph,
    dependencies,
    tools_of,
    undo_id,
)

MAX_CHILDREN = 10_000
"""Calls that a body may plan."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_GIVEN_RESULTS = frozenset({Kind.TOOL, Kind.LLM})
"""The kinds of calls whose arguments may refer to results."""


def call_planned(job: JobState, e: ev.CallPlanned, offset: int) -> bool:
    """A body in charge plans a call: one that only reads, or any once it has asked for what was recorded."""
    body, bodies = body_in_charge(job, e.parent, e.invocation_id), job.bodies
    if body is None or bodies is None or not is_next_word(body.next_word, e.word):
        return False
    body.next_word = e.word  # said, whatever becomes of this record: nobody else can say it
    asked = has_asked(body, e.frontier)
    if not _goes_on(job, e):
        return False
    try:
        node = e.node
        if not _may_be_planned(job, bodies, e, node) or not (asked or only_reads(bodies, node)):
            return False
        call = _call(job, e, node)
    except (ValidationError, InvalidPlan, InvalidArgs):
        return False
    known = job.entries.get(node.id)
    if known is None:
        if body.children >= MAX_CHILDREN or not _is_free(job, bodies, node):
            return False
        body.children += 1
        job.places[node.id] = len(job.places)
        job.entries[node.id] = [PlanEntry(job.revision, node, bodies.pins.get(node.tool or ""), call)]
    elif not _replan(job, bodies, known, call):
        return False
    if node.wait is not None and node.wait.key is not None:
        bodies.awaited.add(node.wait.key)
    body.has_asked = asked
    return True


def only_reads(bodies: Bodies, node: Node) -> bool:
    """Whether a call leaves nothing behind: a body may plan it whatever it has not asked for."""
    pin = bodies.pins.get(node.tool or "")
    harmless = pin is None or (pin.effect_class is EffectClass.PURE and not pin.irreversible)
    return harmless and not node.irreversible and node.compensate_with is None


def edit_entry(job: JobState, node_id: str, args: dict[str, Any], key: str) -> None:
    """From here on the node makes the call with the human's arguments, until a revision of the plan replaces it.

    Of what a body has planned: unless that is another call by now; the same one planned again is the edited one.
    """
    entry = job.entry(node_id)
    if entry is None or any(references(args)) or (entry.call is not None and entry.call.key != key):
        return
    node = entry.node.model_copy(update={"args": args, "depends_on": dependencies(entry.node)})
    call = entry.call
    if call is not None:
        canonical = canonical_args(args)
        made = key_of_canonical(job.job_id, node_id, node.tool_name, canonical)
        call = replace(call, key=made, args_hash=hashlib.sha256(canonical).hexdigest())
    job.entries[node_id].append(PlanEntry(entry.revision, node, entry.pin, call))


def _goes_on(job: JobState, e: ev.CallPlanned) -> bool:
    """No end and no stop, and what it builds on is settled as it says."""
    parent = job.entry(e.parent)
    if parent is None or job.terminal is not None or is_stopped(job, parent):
        return False
    return after_fails(job, e.after) is None


def _may_be_planned(job: JobState, bodies: Bodies, e: ev.CallPlanned, node: Node) -> bool:
    """A node of tools that the first plan has pinned, that comes after nothing but what its arguments refer to.

    Nor does it wait for what is personal: signals that came before the wait was known are not hidden.

    Raises:
        InvalidPlan: it could stand in no plan.
    """
    if node.id != e.node_id or node.kind is Kind.WORKFLOW or node.compensates is not None:
        return False
    if node.depends_on or (node.wait is not None and node.wait.personal is not None):
        return False
    if node.id.endswith(".undo") or any(tool not in bodies.pins for tool in tools_of(node)):
        return False
    if not all(refers_well(job, e.parent, node, one) for one in node.references):
        return False
    check_graph((node,), job.created.adopted, done=frozenset(one.node_id for one in node.refs))
    return True


def refers_well(job: JobState, parent: str, node: Node, used: Reference) -> bool:
    """Whether a body's call may be given a result: of a call of the same body that has succeeded, or an adopted one."""
    if node.kind not in _GIVEN_RESULTS or node.tool in OWN_TOOLS:
        return False
    if used.is_adopted:
        return used.node_id in job.created.adopted
    entry, settled = job.entry(used.node_id), job.settled_key(used.node_id)
    if entry is None or settled is None:
        return False
    return entry.call is not None and entry.call.parent == parent and settled[1].outcome is Settled.SUCCESS


def _call(job: JobState, e: ev.CallPlanned, node: Node) -> PlannedCall:
    """The call that a node makes. With which results, whoever plans it has looked up: they may be large.

    Raises:
        InvalidArgs: its arguments have no canonical form.
        InvalidPlan: its id is neither the body's own word for it nor what follows from its content; or it says a key
            where that follows from its arguments, or none where it does not.
    """
    canonical = canonical_args(node.args)
    if not node.id.startswith(f"{e.parent}."):
        meant = canonical if MARK not in canonical else canonical_args(by_meaning(node.args))
        if node.id != child_id_of_canonical(e.parent, node.tool_name, meant, node.occurrence):
            raise InvalidPlan("id", "is not that of the call")
    if node.references:
        said, args_hash = _digest(e.call_key, "call_key"), _digest(e.args_hash, "args_hash")
        return PlannedCall(e.parent, e.invocation_id, node, said, args_hash)
    if e.call_key is not None or e.args_hash is not None:
        raise InvalidPlan("call_key", "follows from its arguments")
    key = key_of_canonical(job.job_id, node.id, node.tool_name, canonical)
    return PlannedCall(e.parent, e.invocation_id, node, key, hashlib.sha256(canonical).hexdigest())


def _digest(said: str | None, field: str) -> str:
    if said is None or not _DIGEST.fullmatch(said):
        raise InvalidPlan(field, "is that of the call with its results: 64 hex digits")
    return said


def _is_free(job: JobState, bodies: Bodies, node: Node) -> bool:
    """Whether nothing else has its place: the node that would undo it, the signal that it waits for."""
    if node.compensate_with is not None and undo_id(node.id) in job.entries:
        return False
    return node.wait is None or node.wait.key not in bodies.awaited


def may_replan(job: JobState, entry: PlanEntry, node: Node) -> bool:
    """Whether a body may plan this under the id of a call that is planned: it has not begun, nor was it refused.

    Other arguments only while no human has said yes, and nothing is waited for.
    """
    before = entry.call
    keys = [job.keys[key] for key in job.node_keys.get(node.id, ())]
    if before is None or any(key.invocations for key in keys):
        return False
    if before.key in job.keys and job.keys[before.key].status is not KeyStatus.NONE:
        return False
    if node == before.planned:
        return True
    decided = any(key.decision is not None and key.decision.decision is not Decision.REJECT for key in keys)
    return not decided and not any(key.waits_for is not None for key in keys)


def _replan(job: JobState, bodies: Bodies, known: list[PlanEntry], call: PlannedCall) -> bool:
    """What has not begun is this body's from here on."""
    entry, node = known[-1], call.planned
    before = entry.call
    if before is None or before.parent != call.parent or not may_replan(job, entry, node):
        return False
    if node == before.planned:
        taken_over = replace(before, invocation_id=call.invocation_id)
        known[-1] = PlanEntry(entry.revision, entry.node, entry.pin, taken_over)
        return True
    waited = before.planned.wait.key if before.planned.wait is not None else None
    bodies.awaited.discard(waited or "")
    if not _is_free(job, bodies, node):
        bodies.awaited |= {waited} if waited is not None else set()
        return False
    known[-1] = PlanEntry(job.revision, node, bodies.pins.get(node.tool or ""), call)
    return True
