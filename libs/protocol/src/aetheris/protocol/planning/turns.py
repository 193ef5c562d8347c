"""The turns of a job that a model plans: their questions, and what came of the calls in them (docs/models.md); pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import JobState, Settled
from aetheris.protocol.plan.graph import Kind, Name
from aetheris.protocol.plan.prompts import TURN, turn_id
from aetheris.protocol.planning.outcome import HasEffect, has_effect, step_status, structured

MAX_TEXT_CHARS = 1024 * 1024
SHOWN_CHARS = 1_000
"""Of what was refused, so much is kept."""


def text_of(text: str) -> str:
    """What any log can hold: no lone surrogates, not without end."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def turn_of(node_id: str) -> int:
    """The number of the answer that a node gives."""
    return int(node_id.removeprefix(TURN))


def told_before(job: JobState) -> Sequence[Mapping[str, Any]]:
    """What the job's questions say of the calls of the job that it continues."""
    entry = job.entry(turn_id(first_turn(job)))
    return [] if entry is None else entry.node.args.get("earlier", [])


def first_turn(job: JobState) -> int:
    """The number of its first question: one that continues another counts on."""
    return min((turn_of(name) for name in job.entries if is_turn(name)), default=1)


def last_turn(job: JobState) -> int:
    """The number of its newest question."""
    return max((turn_of(name) for name in job.entries if is_turn(name)), default=1)


def turns_told(job: JobState, turn: int) -> Sequence[Mapping[str, Any]]:
    """The turns that a question told of."""
    entry = job.entry(turn_id(turn))
    return [] if entry is None else entry.node.args.get("turns", [])


def took_nothing(job: JobState, node_id: Name) -> bool:
    """Whether a call ended without a result, and surely without an effect."""
    settled, entry = job.settled_key(node_id), job.entry(node_id)
    if settled is None or entry is None or settled[1].outcome is Settled.SUCCESS:
        return False
    return has_effect(entry, settled[1]) is HasEffect.NONE


def may_go_without(job: JobState, node_id: Name) -> bool:
    """Whether a model asked for the call turn by turn, and may go on without it: it surely took no effect."""
    brief, entry = job.created.brief, job.entry(node_id)
    by_turns = brief is not None and brief.planning == "agent"
    return by_turns and entry is not None and entry.node.kind is Kind.TOOL and took_nothing(job, node_id)


def status_told(job: JobState, node_id: Name) -> dict[str, Any]:
    """What the model is told of a call that has no result: it needn't guess from words (docs/models.md)."""
    settled, entry = job.settled_key(node_id), job.entry(node_id)
    if settled is None or entry is None:
        raise KeyError(node_id)
    key, state = settled
    why = f"{state.reason}: {state.detail}" if state.detail else state.reason or "failed"
    body = structured(entry, state, step_status(state), text_of(why[:SHOWN_CHARS]))
    known = {name: value for name, value in body.items() if value is not None}
    return known | {"execution_id": execution_id(job.job_id, node_id, key)}


def is_turn(name: Name) -> bool:
    """Whether a node asks the model."""
    return name.startswith(TURN) and name.removeprefix(TURN).isdecimal()
