"""The facts of jobs.events (docs/events.md). Unknown fields are ignored here and kept in the log's bytes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.adoption import Adopted, Continues
from aetheris.protocol.messages.approval_events import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    PolicyAllowed,
    ResolutionVoted,
)
from aetheris.protocol.messages.begun import Begun
from aetheris.protocol.messages.child_events import CallPlanned, WorkflowAccepted
from aetheris.protocol.messages.event_base import FIRST_RULES, Event, KeyEvent, Payload, RulesVersion
from aetheris.protocol.messages.event_values import (
    After,
    Answer,
    BlobRef,
    Change,
    CodeVersion,
    ConfirmationMode,
    DuplicateOf,
    Observed,
    Outcome,
    RecordedEffectKind,
    RecordedPrincipalKind,
    RecordedReason,
    RecordedRole,
    Via,
    WaitType,
)
from aetheris.protocol.messages.hold_events import JobFrozen, JobPaused, JobResumed, JobUnfrozen
from aetheris.protocol.messages.self_named import by_name
from aetheris.protocol.messages.submission_numbers import SubmissionNumber
from aetheris.protocol.plan.graph import JobOptions, TaskGraph, read_graph
from aetheris.protocol.plan.prompts import Brief

__all__ = [
    "ApprovalDecided",
    "ApprovalRequested",
    "ApprovalVoted",
    "CallPlanned",
    "Event",
    "JobFrozen",
    "JobPaused",
    "JobResumed",
    "JobUnfrozen",
    "KeyEvent",
    "Payload",
    "PolicyAllowed",
    "ResolutionVoted",
    "WorkflowAccepted",
]

_NOTHING: Mapping[str, Adopted] = {}


class JobCreated(Event):
    event_type: ClassVar[str] = "job_created"
    tenant: str
    submitted_by: str
    request_hash: str
    plan: dict[str, Any] | None = None
    goal: str | None = None
    agent: str | None = None
    session: str | None = None
    labels: dict[str, str] | None = None
    """By which its submitter finds it; nothing is decided by them."""
    idempotency_key: str | None = None
    begun: Begun | None = None
    """The call of another job by which it has begun, which submits it, too; None of one that somebody has submitted."""
    options: JobOptions | None = None
    brief: Brief | None = None
    continues: Continues | None = None
    rules: RulesVersion = FIRST_RULES
    """By which version of the rules its records are read, for its life."""
    installation: str | None = None
    """The key id of the root under which the job's records are signed, for its life; None: they are not."""
    partition: int | None = None
    """Of a signed job: where it is written."""
    as_of: int | None = None
    """Of a signed job: an offset there that its writer knew to be taken, or -1; it counts in reach of that."""
    receipt: SubmissionNumber | None = None
    """The number of the submission that it was created by, where that has one: this answers it."""

    @property
    def adopted(self) -> Mapping[str, Adopted]:
        """What it has adopted of earlier jobs, as references call it."""
        return self.continues.by_name if self.continues is not None else _NOTHING


class DecisionSnapshot(Event):
    event_type: ClassVar[str] = "decision_snapshot"
    goal: str
    task_graph: dict[str, Any]
    command_id: str
    memory_summary: str | None = None
    reasoning_summary: str | None = None


class PlanGenerated(Event, dict=True):
    event_type: ClassVar[str] = "plan_generated"
    revision: int = Field(ge=0)
    plan_hash: str
    task_graph: dict[str, Any] | None = None
    diff: dict[str, Any] | None = None
    planner: str
    planner_version: str
    bodies: Literal[True] | None = None
    """It has nodes that plan calls themselves (workflows): then, and only then, it is of version 2."""

    @property
    def version(self) -> int:
        """The major version of the record: who reads only the first pauses the job."""
        return 1 if self.bodies is None else 2

    @cached_property
    def graph(self) -> TaskGraph:
        """What it adds to the plan; the first revision is all of it.

        Raises:
            ValidationError: it is no graph.
        """
        return read_graph(self.task_graph if self.revision == 0 else self.diff)


class NodeFinished(Event):
    event_type: ClassVar[str] = "node_finished"
    node_id: str
    step_index: int
    attempt: int
    result_type: str
    output_hash: str | None = None
    reason: str | None = None
    duplicate_of: DuplicateOf | None = None
    duration_ms: int | None = None


class StateCheckpointed(Event):
    event_type: ClassVar[str] = "state_checkpointed"
    state_hash: str
    as_of: int


class ToolInvocationStarted(KeyEvent):
    event_type: ClassVar[str] = "tool_invocation_started"
    invocation_id: str
    revision: int
    token: int
    attempt_id: int
    external_key: str
    kind: RecordedEffectKind
    tool_name: str
    tool_version: str
    args_hash: str
    content_key: str
    occurrence: int = 1
    rule: str | None = None
    """The policy's rule that let it run."""
    after: tuple[After, ...] = ()
    worker_id: str
    incarnation: str
    parent_invocation: str | None = None
    """Of the first try of a call that a body has planned: that body, which is in charge of it."""
    code: CodeVersion | None = None
    """Of a workflow: the code that runs as its body."""
    plans: str | None = None
    """Of a workflow: what the word of its first `call_planned` is the preimage of, 64 hex digits."""


class ToolInvocationFinished(KeyEvent):
    event_type: ClassVar[str] = "tool_invocation_finished"
    invocation_id: str
    outcome: Outcome
    via: Via
    by: str | None = None
    principal: RecordedPrincipal | None = None
    evidence: Any = None
    result: Any = None
    result_ref: BlobRef | None = None
    output_hash: str | None = None
    error: str | None = None
    external_id: str | None = None
    uncalled: Literal[True] | None = None
    """The executor stopped before the call, and says so itself: it is none of the plan's attempts."""
    votes: tuple[str, ...] | None = None
    """Whose words it rests on, where the rule asks for several: each has a resolution_voted before it."""
    usage: dict[str, Any] | None = None
    """Of an answer: {model, input_tokens, output_tokens, cost_usd?}, as its provider counts."""
    word: str | None = None
    """The try's own, via executor, late and catch_up: 64 hex digits; without it the report is void."""
    frontier: str | None = None
    """Of a body that has planned nothing: as in `call_planned`."""
    until: tuple[str, ...] | None = None
    """Of a body that sleeps (retryable): the nodes, the first of which to settle wakes it."""


class CommandCommitted(Event):
    event_type: ClassVar[str] = "command_committed"
    node_id: str
    command_id: str
    idempotency_key: str
    kind: RecordedEffectKind
    input_hash: str
    output_hash: str


class StateChanged(Event):
    event_type: ClassVar[str] = "state_changed"
    node_id: str
    changes: tuple[Change, ...]


class InvocationRejected(KeyEvent):
    event_type: ClassVar[str] = "invocation_rejected"
    reason: RecordedReason
    detail: str | None = None
    duplicate_of: DuplicateOf | None = None
    observed: tuple[Observed, ...] | None = None
    by: str | None = None
    principal: RecordedPrincipal | None = None
    comment: str | None = None
    policy_hash: str | None = None
    """hex SHA-256 of the policy, where that says so."""
    activation: int | None = None
    """Its activation; 0: the ledger's configured policy, before the first."""


class InvocationCancelRequested(KeyEvent):
    event_type: ClassVar[str] = "invocation_cancel_requested"
    by: str
    reason: str | None = None


class RetryScheduled(KeyEvent):
    event_type: ClassVar[str] = "retry_scheduled"
    invocation_id: str
    """The try that it follows: it says nothing of when a later one is repeated."""
    attempt: int
    due_at: str


class InvocationInDoubt(KeyEvent):
    event_type: ClassVar[str] = "invocation_in_doubt"
    invocation_id: str
    error_class: str
    returned: bool = Field(default=False, strict=True)
    """By the try itself: its own code has raised, and nothing that it started lives; it can act no more."""
    word: str | None = None
    """The try's own, 64 hex digits; absent where the ledger says it."""
    evidence: tuple[Any, ...] = ()


class InvocationProbed(KeyEvent):
    event_type: ClassVar[str] = "invocation_probed"
    invocation_id: str
    external_key: str
    ask: str
    answer: Answer
    result: Any = None
    result_ref: BlobRef | None = None
    external_id: str | None = None
    changes: tuple[Change, ...] = ()
    evidence: tuple[Any, ...] = ()


class WorkerEnded(Event):
    event_type: ClassVar[str] = "worker_ended"
    worker_id: str
    incarnation: str
    how: str
    by: str | None = None
    principal: RecordedPrincipal | None = None
    evidence: str | None = None


class InvocationParked(KeyEvent):
    """Nobody but a human can tell; who that may be stands in what let the call start."""

    event_type: ClassVar[str] = "invocation_parked"
    invocation_id: str
    reason: str
    evidence: tuple[Any, ...] = ()


class InvocationReopened(KeyEvent):
    event_type: ClassVar[str] = "invocation_reopened"
    invocation_id: str
    next_token: int
    by: Literal["probe", "policy", "human"]
    principal: RecordedPrincipal | None = None
    evidence: tuple[Any, ...] = ()


class JobWaiting(Event):
    event_type: ClassVar[str] = "job_waiting"
    wait_type: WaitType
    node_id: str | None = None
    idempotency_key: str | None = None
    correlation_key: str | None = None
    due_at: str | None = None
    since: str | None = None
    """When it began to wait, where that was before it was said."""
    form: dict[str, Any] | None = None
    rule: str | None = None
    approvers: tuple[str, ...] | None = None
    approver_roles: tuple[RecordedRole, ...] | None = None
    approver_kinds: tuple[RecordedPrincipalKind, ...] | None = None
    self_approval: bool | None = None
    approvals: int | None = Field(default=None, ge=2)
    """How many different principals must say so, where it is to be accepted; absent: one."""
    signed: bool | None = None


class WaitCompleted(Event):
    event_type: ClassVar[str] = "wait_completed"
    wait_type: WaitType
    node_id: str | None = None
    idempotency_key: str | None = None
    correlation_key: str | None = None
    payload: Any = None
    output_hash: str | None = None
    command_id: str | None = None
    by: str | None = None
    principal: RecordedPrincipal | None = None
    votes: tuple[str, ...] | None = None
    """As of `tool_invocation_finished`, of what is accepted."""
    comment: str | None = None


class SignalReceived(Event):
    event_type: ClassVar[str] = "signal_received"
    correlation_key: str
    payload: Any = None
    command_id: str | None = None


class CancelRequested(Event):
    event_type: ClassVar[str] = "cancel_requested"
    by: str
    principal: RecordedPrincipal | None = None
    """What he was, where he is of another tenant than the job."""
    reason: str | None = None
    compensate: bool = False


class JobStopping(Event):
    event_type: ClassVar[str] = "job_stopping"
    by: str
    reason: str
    up_to_revision: int


class JobCompleted(Event):
    event_type: ClassVar[str] = "job_completed"
    result: Any = None


class JobFailed(Event):
    event_type: ClassVar[str] = "job_failed"
    error: str
    node_id: str | None = None
    compensated: tuple[str, ...] | None = None
    unfounded: bool | None = None
    """What it says of the job that it continues is not so: nothing of it has run, and it is continued by none."""


class JobCancelled(Event):
    event_type: ClassVar[str] = "job_cancelled"
    by: str
    reason: str | None = None
    compensated: tuple[str, ...] | None = None


class EffectConfirmed(KeyEvent):
    """One changed resource, number `place` of `of`, is as it was left; `ask` names the question."""

    event_type: ClassVar[str] = "effect_confirmed"
    ask: str
    place: int
    of: int
    resource: dict[str, Any]
    mode: ConfirmationMode
    evidence: tuple[Any, ...] = ()


class ConfirmationFailed(KeyEvent):
    """It is otherwise (drift; `detail` is the difference), or nobody can say (unknown)."""

    event_type: ClassVar[str] = "confirmation_failed"
    ask: str
    place: int
    of: int
    resource: dict[str, Any]
    mode: ConfirmationMode
    reason: Literal["drift", "unknown"]
    detail: Any = None
    evidence: tuple[Any, ...] = ()


class StepCompensated(Event):
    event_type: ClassVar[str] = "step_compensated"
    node_id: str
    compensates: str
    summary: str | None = None


class ViolationFound(Event):
    """A rule that the job's history breaks, and the record that breaks it, as the verifier saw it flow by."""

    event_type: ClassVar[str] = "violation_found"
    rule: str
    event_id: str
    offset: int
    message: str


class KeyRevoked(Event):
    """The root's word that nothing counts in this job that the key signs behind it (`protocol.base.signing`)."""

    event_type: ClassVar[str] = "key_revoked"
    key_id: str
    at: str
    """When the root said so, RFC 3339."""
    reason: str
    root: str
    """Base64 of the root's raw public key."""
    signature: str


class BirthRepeated(Event):
    """A late repeat of a creation, seen by who knows every job: the job was created at `birth`, in jobs.events."""

    event_type: ClassVar[str] = "birth_repeated"
    birth: int


class JobSealed(Event):
    event_type: ClassVar[str] = "job_sealed"
    tenant: str
    event_count: int
    root: str
    chain: int
    """The newest version of the chain that it states; `tree` is that one's root, `root` the first's."""
    tree: str
    execution_hash: str
    outcome_hash: str
    sealed_at: str
    signature: str
    key_id: str
    salt: str = ""
    """Random, so that the line's hash, which anybody may see, tells nothing of it; who seals writes one."""
    calls: str | None = None
    """The root over the calls of which parts can be shown alone (docs/evidence.md); where there are none, none."""
    amends: str | None = None
    """The SHA-256 (hex) of the line of the seal before, where this one amends it by what came later."""
    consistency: tuple[str, ...] | None = None
    """Then, that its tree begins with that one's (RFC 9162 §2.1.4, hex)."""


TERMINAL = (JobCompleted, JobFailed, JobCancelled)


EVENTS: dict[str, type[Event]] = by_name(Event, "event_type")
"""event_type → model."""
