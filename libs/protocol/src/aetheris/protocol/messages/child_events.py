"""Calls that a running body plans, and who is the body (docs/guarantees.md, "Calls of a body")."""

from functools import cached_property
from typing import Any, ClassVar

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.event_base import Event, KeyEvent
from aetheris.protocol.messages.event_values import After
from aetheris.protocol.plan.graph import Node


class CallPlanned(Event, dict=True):
    """A body plans a call: a node of its job, beneath its own. It is no revision of the plan."""

    event_type: ClassVar[str] = "call_planned"
    node_id: str
    parent: str
    """The body's node."""
    invocation_id: str
    """The body: the try of its node that runs."""
    entry: dict[str, Any]
    """The node, as in a plan; its arguments refer to results of the same body's calls, and to nothing else."""
    word: str | None = None
    """The body's own, 64 hex digits: its SHA-256 is the word of the call before, or `plans` of its start."""
    after: tuple[After, ...] = ()
    call_key: str | None = None
    """Where its arguments refer to results: the idempotency key of the call that it makes with them."""
    args_hash: str | None = None
    """And the hash of those arguments."""
    frontier: str | None = None
    """In a body's first: of what was recorded when it began, all that it has asked for (64 hex digits)."""

    @cached_property
    def node(self) -> Node:
        """What is planned.

        Raises:
            ValidationError: it is no node.
        """
        return Node.model_validate(self.entry)


class WorkflowAccepted(KeyEvent):
    """A person's word: a body of this code need not ask for these recorded calls."""

    event_type: ClassVar[str] = "workflow_accepted"
    invocation_id: str
    """The parked body."""
    code_hash: str
    waives: tuple[str, ...]
    """The nodes of those calls."""
    by: str
    principal: RecordedPrincipal | None = None
    evidence: str | None = None
