"""The facts of jobs.events (docs/events.md). Unknown fields are ignored here and kept in the log's bytes."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base import recordable
from aetheris.protocol.base.references import adopted_name
from aetheris.protocol.plan.graph import EffectKind, JobOptions, TaskGraph
from aetheris.protocol.plan.prompts import Brief

M = TypeVar("M", bound=BaseModel)


class Outcome(StrEnum):
    """How a try ended; what is not known is no outcome."""

    SUCCESS = "success"
    COMPENSATABLE = "compensatable_failure"
    RETRYABLE = "retryable_failure"
    PERMANENT = "permanent_failure"

    @property
    def took_effect(self) -> bool:
        """Settles as a success: the effect stands."""
        return self in (Outcome.SUCCESS, Outcome.COMPENSATABLE)


class Via(StrEnum):
    """Who says so: the try itself, or who settled it in its place."""

    EXECUTOR = "executor"
    CATCH_UP = "catch_up"
    PROBE = "probe"
    LATE = "late"
    HUMAN = "human"
    LEDGER = "ledger"


class Decision(StrEnum):
    """A human's answer to an approval request."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"


class Answer(StrEnum):
    """What the outside says of an external key."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


class RejectReason(StrEnum):
    """Why a call is not to start."""

    POLICY = "policy"
    DUPLICATE_OF = "duplicate_of"
    APPROVAL = "approval"
    APPROVAL_MISMATCH = "approval_mismatch"
    EDITED = "edited"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    CONFIRMATION = "confirmation"


class Payload(BaseModel):
    """What every payload has."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str


class Event(Payload):
    """A fact about a job."""

    event_type: ClassVar[str]
    caused_by: str | None = None


class KeyEvent(Event):
    """A fact about one invocation key."""

    node_id: str
    idempotency_key: str


class Change(BaseModel):
    """What a call changed outside."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    resource_type: str
    resource_id: str
    operation: str
    version: str | None = None
    etag: str | None = None
    external_ref: str | None = None


def changes_of(reported: Iterable[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Changes as they are recorded, as far as there is room."""
    return tuple(Change.model_validate(one) for one in recordable.changes(reported))


class BlobRef(BaseModel):
    """A result over 64 KiB: where its bytes are, by content."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sha256: str
    size: int


class SealOf(BaseModel):
    """What a job's seal says, where another job names it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    event_count: int
    root: str
    outcome_hash: str
    key_id: str


class Adopted(BaseModel):
    """A step that an earlier job settled as a success, and that is not run again; `content_key` where irreversible.

    `result_ref`: where its result lies, which is too large for a record.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    node_id: str
    idempotency_key: str
    invocation_id: str | None = None
    tool_name: str
    args_hash: str | None = None
    result_hash: str | None = None
    result_ref: BlobRef | None = None
    external_id: str | None = None
    content_key: str | None = None
    occurrence: int = 1

    @property
    def name(self) -> str:
        """What a reference to its result calls it."""
        return adopted_name(self.job_id, self.node_id)


class StepSettlement(BaseModel):
    """What who continues a job says became of a step of it that nobody was sure of; he submits the new one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    node_id: str
    idempotency_key: str
    invocation_id: str | None = None
    verdict: Literal["happened", "not_executed"]
    evidence: str
    result: Any = None


class Use(BaseModel):
    """Where a value stands for an adopted result: the place in the node (JSON Pointer), and the reference that led."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    node_id: str
    at: str
    ref: str


class Given(BaseModel):
    """The whole result of an adopted step, for the references that lead into it (`name`: what they call the step)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    result: Any = None


class Continues(BaseModel):
    """The failed or cancelled job that a job goes on from, its seal, and what is adopted of it (docs/continue.md).

    `depth`: how many jobs, each continuing the next, stand behind the new one. A result that the plan refers to stands
    in it (`uses`), or is `given`, or lies where its `result_ref` says.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    seal: SealOf
    depth: int = 1
    adopted: tuple[Adopted, ...] = ()
    settled: tuple[StepSettlement, ...] = ()
    uses: tuple[Use, ...] = ()
    given: tuple[Given, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Adopted]:
        """What is adopted, as references call it."""
        return {one.name: one for one in self.adopted}

    @cached_property
    def results(self) -> dict[str, Any]:
        """The results that are given, as references call them."""
        return {one.name: one.result for one in self.given}

    @cached_property
    def by_meaning(self) -> dict[tuple[str, int], Adopted]:
        """The adopted effects that can't be undone, by content key and occurrence: none of them is done again."""
        return {(one.content_key, one.occurrence): one for one in self.adopted if one.content_key is not None}


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
    idempotency_key: str | None = None
    parent_job_id: str | None = None
    options: JobOptions | None = None
    brief: Brief | None = None
    continues: Continues | None = None

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


class PlanGenerated(Event):
    event_type: ClassVar[str] = "plan_generated"
    revision: int = Field(ge=0)
    plan_hash: str
    task_graph: dict[str, Any] | None = None
    diff: dict[str, Any] | None = None
    planner: str
    planner_version: str

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "PlanGenerated":
        """A copy; its graph is read anew."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("graph", None)
        return copied

    @cached_property
    def graph(self) -> TaskGraph:
        """What it adds to the plan; the first revision is all of it.

        Raises:
            ValidationError: it is no graph.
        """
        return TaskGraph.model_validate(self.task_graph if self.revision == 0 else self.diff)


class DuplicateOf(BaseModel):
    """The call that means the same as a refused one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str
    node_id: str
    execution_id: str


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


class After(BaseModel):
    """An earlier invocation whose result a started one uses."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    invocation_id: str
    result_hash: str


class ToolInvocationStarted(KeyEvent):
    event_type: ClassVar[str] = "tool_invocation_started"
    invocation_id: str
    revision: int
    token: int
    attempt_id: int
    external_key: str
    kind: EffectKind
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


class ToolInvocationFinished(KeyEvent):
    event_type: ClassVar[str] = "tool_invocation_finished"
    invocation_id: str
    outcome: Outcome
    via: Via
    by: str | None = None
    evidence: Any = None
    result: Any = None
    result_ref: BlobRef | None = None
    output_hash: str | None = None
    error: str | None = None
    external_id: str | None = None
    usage: dict[str, Any] | None = None
    """Of an answer: {model, input_tokens, output_tokens, cost_usd?}, as its provider counts."""


class CommandCommitted(Event):
    event_type: ClassVar[str] = "command_committed"
    node_id: str
    command_id: str
    idempotency_key: str
    kind: EffectKind
    input_hash: str
    output_hash: str


class StateChanged(Event):
    event_type: ClassVar[str] = "state_changed"
    node_id: str
    changes: tuple[Change, ...]


class PolicyAllowed(KeyEvent):
    event_type: ClassVar[str] = "policy_allowed"
    args_hash: str
    tool_version: str
    rule: str
    cost: float | None = None


class ApprovalRequested(KeyEvent):
    event_type: ClassVar[str] = "approval_requested"
    args_hash: str
    tool_version: str
    rule: str
    form: dict[str, Any]
    expires_at: str | None = None
    approvers: tuple[str, ...] | None = None
    self_approval: bool = False
    edited_by: str | None = None
    """Who made this call of another by an edit."""
    cost: float | None = None
    token: int | None = None
    """The generation from which on it counts: absent (1), or that which a human's retry began."""

    @property
    def generation(self) -> int:
        """The token, where absent is 1."""
        return 1 if self.token is None else self.token


class ApprovalDecided(KeyEvent):
    event_type: ClassVar[str] = "approval_decided"
    args_hash: str
    tool_version: str
    rule: str
    decision: Decision
    approver: str
    comment: str | None = None
    data: dict[str, Any] | None = None
    token: int | None = None
    """Its request's."""

    @property
    def generation(self) -> int:
        """The token, where absent is 1."""
        return 1 if self.token is None else self.token


class InvocationRejected(KeyEvent):
    event_type: ClassVar[str] = "invocation_rejected"
    reason: RejectReason
    detail: str | None = None
    duplicate_of: DuplicateOf | None = None
    by: str | None = None
    comment: str | None = None


class InvocationCancelRequested(KeyEvent):
    event_type: ClassVar[str] = "invocation_cancel_requested"
    by: str
    reason: str | None = None


class RetryScheduled(KeyEvent):
    event_type: ClassVar[str] = "retry_scheduled"
    attempt: int
    due_at: str


class InvocationInDoubt(KeyEvent):
    event_type: ClassVar[str] = "invocation_in_doubt"
    invocation_id: str
    error_class: str
    returned: bool = False
    """By the try itself: its own code has raised, and nothing that it started lives; it can act no more."""
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
    evidence: str | None = None


class InvocationParked(KeyEvent):
    """Nobody but a human can tell; rule, approvers and self_approval say who that may be."""

    event_type: ClassVar[str] = "invocation_parked"
    invocation_id: str
    reason: str
    rule: str | None = None
    approvers: tuple[str, ...] | None = None
    self_approval: bool | None = None
    evidence: tuple[Any, ...] = ()


class InvocationReopened(KeyEvent):
    event_type: ClassVar[str] = "invocation_reopened"
    invocation_id: str
    next_token: int
    by: Literal["probe", "policy", "human"]
    evidence: tuple[Any, ...] = ()


WaitType = Literal[
    "signal", "human", "timer", "approval", "resolve", "upgrade", "confirmation", "duplicate", "verifier"
]


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
    self_approval: bool | None = None


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
    comment: str | None = None


class SignalReceived(Event):
    event_type: ClassVar[str] = "signal_received"
    correlation_key: str
    payload: Any = None
    command_id: str | None = None


class CancelRequested(Event):
    event_type: ClassVar[str] = "cancel_requested"
    by: str
    reason: str | None = None
    compensate: bool = False


class JobPaused(Event):
    """A person's word: nothing of the job starts until the pause of this number, counted from 1, is over."""

    event_type: ClassVar[str] = "job_paused"
    number: int = Field(ge=1)
    by: str
    reason: str | None = None


class JobResumed(Event):
    """A person's word: the pause of this number is over."""

    event_type: ClassVar[str] = "job_resumed"
    number: int = Field(ge=1)
    by: str
    reason: str | None = None


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


ConfirmationMode = Literal["strict", "warn", "human_in_loop", "reconcile"]
"""Why a recorded effect is compared with the outside: by the job's option, before it goes on, or asked for."""


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


class BirthRepeated(Event):
    """A late repeat of a birth, seen by who knows every job: the job was born at `birth`, in jobs.events."""

    event_type: ClassVar[str] = "birth_repeated"
    birth: int


class JobSealed(Event):
    event_type: ClassVar[str] = "job_sealed"
    tenant: str
    event_count: int
    root: str
    execution_hash: str
    outcome_hash: str
    sealed_at: str
    signature: str
    key_id: str


TERMINAL = (JobCompleted, JobFailed, JobCancelled)


def by_name(base: type[M], attribute: str) -> dict[str, type[M]]:
    """Every subclass that names itself in a class variable, under that name."""
    found: dict[str, type[M]] = {}
    for kind in base.__subclasses__():
        if attribute in kind.__dict__:
            found[getattr(kind, attribute)] = kind
        found |= by_name(kind, attribute)
    return found


EVENTS: dict[str, type[Event]] = by_name(Event, "event_type")
"""event_type → model."""
