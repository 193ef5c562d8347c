"""What is asked for: jobs.commands, tools.requests, tools.grants, verifications, and the compacted tables."""

import hashlib
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.ids import NAME
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.base.words import HexDigits, WordsOfLives
from aetheris.protocol.messages.adoption import Continues
from aetheris.protocol.messages.begun import Begun
from aetheris.protocol.messages.event_values import ConfirmationMode
from aetheris.protocol.messages.job_command import JobCommand
from aetheris.protocol.messages.log_homes import LogHome
from aetheris.protocol.messages.message_base import Message, TableLine
from aetheris.protocol.messages.partition_orders import (
    PLACED_KEY,
    POLICY_KEY,
    RULES_BARRIER_KEY,
    RULES_KEY,
    ActingCall,
    FreezeAnswer,
    FreezeBarrier,
    FreezeOrder,
    JobPlaced,
    NumberedOrder,
    PartitionAnswer,
    PartitionBarrier,
    PolicyActivation,
    PolicyAnswer,
    PolicyBarrier,
    RulesAnswer,
    RulesBarrier,
    RulesOrder,
)
from aetheris.protocol.messages.registry_lines import ExecutorTools, ModelEntry, RegistryEntry, ToolRelease
from aetheris.protocol.messages.seal_lines import AnsweredSubmissions, InterimSeals
from aetheris.protocol.messages.self_named import by_name
from aetheris.protocol.messages.submission_numbers import SubmissionNumber
from aetheris.protocol.plan.graph import (
    JobOptions,
)
from aetheris.protocol.plan.prompts import Brief

__all__ = [
    "PLACED_KEY",
    "POLICY_KEY",
    "RULES_BARRIER_KEY",
    "RULES_KEY",
    "ActingCall",
    "AnsweredSubmissions",
    "ExecutorTools",
    "FreezeAnswer",
    "FreezeBarrier",
    "FreezeOrder",
    "InterimSeals",
    "JobCommand",
    "JobPlaced",
    "LogHome",
    "Message",
    "ModelEntry",
    "NumberedOrder",
    "PartitionAnswer",
    "PartitionBarrier",
    "PolicyActivation",
    "PolicyAnswer",
    "PolicyBarrier",
    "RegistryEntry",
    "RulesAnswer",
    "RulesBarrier",
    "RulesOrder",
    "TableLine",
    "ToolRelease",
]

MAX_OPEN_REQUESTS = 50
"""Of one job that are listed at a time: a line of jobs.index is written anew with each change."""


class Submit(JobCommand):
    type_name: ClassVar[str] = "submit"
    request_hash: str
    plan: dict[str, Any] | None = None
    goal: str | None = None
    agent: str | None = None
    session: str | None = None
    labels: dict[str, str] | None = None
    idempotency_key: str | None = None
    options: JobOptions = JobOptions()
    brief: Brief | None = None
    continues: Continues | None = None
    receipt: SubmissionNumber | None = None
    """What its receipt names it by; None of a gateway that signs nothing."""
    repeats: bool = False
    """It was taken before, and asks for nothing: it has its number, so that its receipt is answered too."""


class BeginJob(Submit):
    """Written by the planner of the job whose call this is: what that one asks for is all that it says."""

    type_name: ClassVar[str] = "begin_job"
    begun: Begun


class PlacementOver(JobCommand):
    """Written by the planner of the partition in which a job was placed: none has come of its submission."""

    type_name: ClassVar[str] = "placement_over"


class Cancel(JobCommand):
    type_name: ClassVar[str] = "cancel"
    reason: str | None = None
    compensate: bool = False


class CancelChild(Cancel):
    """Written by the planner of the job by which it has begun, which has stopped."""

    type_name: ClassVar[str] = "cancel_child"


class Pause(JobCommand):
    """The job's next pause, or the end of the one in force, by its number as the writer has read it.

    A word that comes late, or again, is about a pause that is over, and does nothing.
    """

    type_name: ClassVar[str] = "pause"
    number: int = Field(ge=1)
    reason: str | None = None


class Resume(JobCommand):
    """As Pause."""

    type_name: ClassVar[str] = "resume"
    number: int = Field(ge=1)
    reason: str | None = None


class StepCommand(JobCommand):
    """About what a job's log says: `as_of` is the offset of jobs.events that its writer had read.

    Who decides about it must have folded as much: a command is never dropped because its reader was behind.
    """

    as_of: int


class Signal(StepCommand):
    type_name: ClassVar[str] = "signal"
    correlation_key: str
    payload: Any = None


class JobEnded(Signal):
    """Written by the planner of the job that has ended, for the one that waits for that."""

    type_name: ClassVar[str] = "job_ended"


class CancelContract(StepCommand):
    type_name: ClassVar[str] = "cancel_contract"
    execution_id: str
    reason: str | None = None


class Respond(StepCommand):
    type_name: ClassVar[str] = "respond"
    request_id: str
    action: Literal["approve", "edit", "reject"]
    data: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = None
    signature: str | None = None
    """Of what he says, by a key or passkey of his own: SSHSIG, armored."""


class Resolve(StepCommand):
    type_name: ClassVar[str] = "resolve"
    execution_id: str
    verdict: Literal["happened", "not_executed", "retry"]
    evidence: str
    result: Any = None
    accept_code: HexDigits | None = None
    """With a retry of a workflow's code: the hash of code that need not ask for what was done before it."""


class Reconcile(JobCommand):
    """Compare what a job did with the external system; `birth` and `as_of` bound its records in jobs.events."""

    type_name: ClassVar[str] = "reconcile"
    birth: int
    as_of: int


class ToolRequest(Message):
    """tools.requests: "these nodes may run next, in this order"; `as_of` is the offset the planner had folded."""

    type_name: ClassVar[str] = "tool_request"
    job_id: str
    birth: int
    as_of: int
    revision: int
    plan_hash: str
    nodes: tuple[str, ...] = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)
    not_before: str | None = None


class ToolGrant(Message):
    """tools.grants: "run this"; the key and token are those of the first node, `as_of` the ledger's offset."""

    type_name: ClassVar[str] = "tool_grant"
    job_id: str
    birth: int
    as_of: int
    revision: int
    plan_hash: str
    nodes: tuple[str, ...] = Field(min_length=1)
    rules: tuple[str, ...] = ()
    """The policy's rules that let the nodes run, in the order of the nodes."""
    activation: int = 0
    """Of that policy: behind the barrier of a later one nothing of it starts."""
    idempotency_key: str
    token: int
    lease_id: str
    deadline_s: float
    incarnation: str | None = None
    """The only life of a worker that may take it: another may have come when all was gone, and things have changed."""
    pool: str | None = None
    """The executors that may take it; None: any."""
    licence: dict[str, str] | None = None
    """Of a workflow: the tools, and kinds without one, whose calls its body may start without asking → the rule that
    allows each of them, whatever its arguments are."""


class Verification(Message):
    """verifications: a question to the external system about one invocation; the answer repeats `ask`."""

    type_name: ClassVar[str] = "verification"
    job_id: str
    birth: int
    node_id: str
    idempotency_key: str
    invocation_id: str
    external_key: str
    tool_name: str
    tool_version: str
    ask: str
    what: Literal["probe", "confirm"] = "probe"
    mode: ConfirmationMode = "reconcile"
    resources: tuple[dict[str, Any], ...] = ()
    caused_by: str | None = None
    hidden: bool = False
    """Whether the call had hidden values: of the answer only its kind is recorded."""
    installation: str | None = None
    """Of a signed job: the root that its creation names."""
    born: str | None = None
    """Of a signed job: hex SHA-256 of its creation's value. Who answers reads no job, and signs for this one."""


class OpenRequest(BaseModel):
    """A request to a human that waits for its answer.

    `asked` is the payload of its event, where that is small; `offset` in jobs.events is where it is in any case.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    node_id: str
    kind: Literal["approval", "human"]
    title: str
    offset: int
    created_at: str
    expires_at: str | None = None
    asked: dict[str, Any] | None = None
    approvals: int | None = None
    """How many must say yes, where that is more than one; `votes` names who has."""
    votes: tuple[str, ...] = ()


class ListedPause(BaseModel):
    """The pause that a job is in: its number, who paused it, and why."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    number: int
    by: str
    reason: str | None = None


class ListedFreeze(FreezeScope):
    """A freeze that a job is in: whom it names, its number in its scope, who ordered it, when, and why."""

    number: int
    by: str
    at: str
    reason: str | None = None


class JobIndexEntry(Message):
    """jobs.index: one line for every job ever created; `requests` are the oldest open ones, at most MAX_OPEN_REQUESTS.

    `paused` is there while the status is `paused`, `frozen` while it is `frozen`; `stretches` of jobs.events, which
    hold the job's records from its birth up to its first seal, once it is sealed. `partition` is there where it lies in
    another one than its id names.
    """

    type_name: ClassVar[str] = "job_index"
    job_id: str
    birth: int
    request_hash: str
    status: str
    tenant: str
    submitted_by: str
    created_at: str
    requests: tuple[OpenRequest, ...] = ()
    trace: bool | None = None
    paused: ListedPause | None = None
    frozen: ListedFreeze | None = None
    labels: dict[str, str] | None = None
    stretches: tuple[Stretch, ...] = ()
    partition: int | None = Field(default=None, ge=0)


class JobBehind(Message):
    """jobs.index, beside a job's line: the stretches of jobs.events with its records behind its first seal."""

    type_name: ClassVar[str] = "job_behind"
    of_job: str
    stretches: tuple[Stretch, ...]

    @staticmethod
    def key_of(job_id: str) -> str:
        """The record key; no job has an id like it."""
        return f"{job_id}:behind"


class WorkerEntry(Message):
    """workers: which incarnation lives under a name.

    `left` and `ended` are words, which prove it of the incarnations that they lead to (`base.words.life_of`).
    """

    type_name: ClassVar[str] = "worker"
    worker_id: str = Field(pattern=f"^{NAME.pattern}$")
    live: HexDigits | None = None
    since: str | None = None
    left: WordsOfLives = ()
    ended: WordsOfLives = ()


class ArchivedJob(TableLine):
    """jobs.archive: the bundle of a sealed job, in the store of blobs; `until` is the offset behind its last record.

    What is at its path counts with these bytes (`sha256`), and only as far as the job's seal bears it out.
    """

    type_name: ClassVar[str] = "archived_job"
    job_id: str = Field(pattern=f"^{NAME.pattern}$")
    tenant: str
    month: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}$")
    sha256: HexDigits
    until: int = Field(ge=1)

    @property
    def key(self) -> str:
        """The record key."""
        return self.job_id

    @property
    def path(self) -> str:
        """Where its bundle lies in the store: by tenant, the month (UTC) that it was sealed in, and job."""
        plain = NAME.fullmatch(self.tenant) is not None and self.tenant.strip(".")
        tenant = self.tenant if plain else hashlib.sha256(self.tenant.encode(errors="replace")).hexdigest()
        return f"archive/{tenant}/{self.month}/{self.job_id}.{self.sha256}.zip"


class WorkerEnd(TableLine):
    """workers, beside a worker's line: a person's word that an incarnation can act no more."""

    type_name: ClassVar[str] = "worker_end"
    worker_id: str = Field(pattern=f"^{NAME.pattern}$")
    incarnation: str
    by: str
    principal: RecordedPrincipal | None = None
    evidence: str

    @property
    def key(self) -> str:
        """The record key; no worker has a name like it."""
        return f"{self.worker_id}:{self.incarnation}"


class LedgerRecord(Message):
    """ledger.records: a view with the offset it was made from; never a source."""

    type_name: ClassVar[str] = "ledger_record"
    invocation_id: str
    job_id: str
    step_id: str
    tool_name: str
    args_hash: str
    idempotency_key: str
    status: Literal["new", "started", "success", "failure", "in_doubt", "parked", "confirmed"]
    committed: bool
    attempt_id: int
    token: int
    offset: int
    result: Any = None
    external_id: str | None = None
    confirmed_at: str | None = None


ContentState = Literal["open", "succeeded", "unsure", "void"]
"""Under way; done; ended, and nobody knows whether it took effect; certainly without effect: it stands no more."""


class ContentRecord(Message):
    """ledger.contents: an irreversible call, under what it means in a session or tenant, and how it stands; a view."""

    type_name: ClassVar[str] = "content"
    scope_key: str
    job_id: str
    node_id: str
    execution_id: str
    creation_offset: int = Field(ge=0)
    """Where the call's job was created: who has read that far, and doesn't know the job, knows that it has ended."""
    state: ContentState = "open"
    until: str | None = None
    """How long it keeps others from running; None while it is under way."""
    partition: int | None = Field(default=None, ge=0)
    """Where its job lies, if in another one than its id names."""


MESSAGES: dict[str, type[Message]] = by_name(Message, "type_name")
"""type_name → model."""
