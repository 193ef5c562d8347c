"""What goes between a workflow's running code, its body, and who runs it: what it asks for, what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from aetheris.protocol.fold.state import KeyState
from aetheris.protocol.plan.graph import ToolPin


@dataclass(frozen=True, slots=True)
class BodyStart:
    """A body that is to run from its beginning; what came before it is told as it asks for it."""

    body: str
    """Its invocation_id."""
    workflow: str
    """name@version."""
    job_id: str
    node_id: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    planned: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its arguments as its plan has them, where they may refer to what the job has adopted; for what is built in."""
    pins: Mapping[str, ToolPin] = field(default_factory=dict[str, ToolPin])
    """The tools of its job's first plan; for what is built in."""


class CallSettled(BaseModel):
    """How a call of a body has settled, as its log says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node_id: str
    outcome: str
    """success, failed or rejected."""
    sure: bool = True
    """Of what is no success: whether there is certainly no effect."""
    result: Any = None
    reason: str | None = None
    rejected_by: str | None = None
    via: str | None = None
    """Who has settled it: executor, probe, human, …."""
    detail: str | None = None
    """Beside a rejection's reason."""
    duplicate_of: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    """What a model's answer has used."""
    execution_id: str | None = None
    external_id: str | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A body makes a call: one that is new, or one that is recorded."""

    body: str
    node: dict[str, Any]
    """As in a plan; its arguments may refer to results of calls that have succeeded."""
    by_reference: bool = False
    """The body is told that it has succeeded, and not with what: it hands that on unread."""
    from_log: bool = False
    """It is told nothing of it before the log has it: it reads the result, and refers to it besides."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A body has been told all that there is to tell, and does nothing until one of these settles."""

    body: str
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Returned:
    """A body has come to its end."""

    body: str
    result: Any


@dataclass(frozen=True, slots=True)
class BodyRaised:
    """A body has ended by an exception; `text` holds nothing that could not be recorded."""

    body: str
    error_class: str
    text: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The process of a body has ended, or was silent for too long and was killed."""

    body: str
    why: str
    at_fault: bool
    """Whether it was this body that ran when that happened."""


BodySaid = Asked | Idle | Returned | BodyRaised | Lost


def settled_call(node_id: str, state: KeyState, result: Any, execution_id: str | None = None) -> CallSettled:
    """How a call has settled, as its body is told; `result`: loaded, where it is large."""
    return CallSettled(
        node_id=node_id,
        outcome="" if state.outcome is None else state.outcome.value,
        sure=state.sure,
        result=result,
        reason=state.reason,
        rejected_by=state.rejected_by,
        via=None if state.via is None else state.via.value,
        detail=state.detail,
        usage=state.usage,
        execution_id=execution_id,
        duplicate_of=None if state.duplicate_of is None else state.duplicate_of.model_dump(mode="json"),
        external_id=state.external_id,
        partial=state.partial,
    )
