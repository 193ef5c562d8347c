"""What goes over the gateway's HTTP API (docs/http-api.md): the bodies that clients send, the answers that they get.

The gateway and the SDK's client share these models; docs/openapi.json is generated from them. A body with a field that
is not known is refused. An answer may have more fields than its reader knows.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from aetheris.protocol.api_models import BegunBy, ChildJob, RequestModel, ResponseModel
from aetheris.protocol.base.freeze_scope import NAME_LIMIT
from aetheris.protocol.base.labels import Labels
from aetheris.protocol.base.sshsig import MAX_ARMORED
from aetheris.protocol.base.words import HexDigits
from aetheris.protocol.plan.forms import NamePattern
from aetheris.protocol.plan.graph import CorrelationKey, JobOptions
from aetheris.protocol.plan.prompts import Limits, ModelName, Planning, Seed, Temperature

Verdict = Literal["happened", "not_executed", "retry"]
Action = Literal["approve", "edit", "reject"]

_ENDED = frozenset({"completed", "failed", "cancelled"})


# Bodies


class Options(JobOptions):
    """The options of a submission; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsBody(Limits):
    """The limits of a goal; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Submission(RequestModel):
    """The body of POST /jobs; what follows the goal goes with one, and with nothing else."""

    plan: dict[str, Any] | None = None
    goal: str | None = Field(default=None, min_length=1, max_length=10_000)
    model: ModelName | None = None
    tools: tuple[NamePattern, ...] | None = Field(default=None, max_length=500)
    system: str | None = Field(default=None, max_length=20_000)
    planning: Planning | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: Temperature | None = None
    seed: Seed | None = None
    limits: LimitsBody | None = None
    agent: str | None = Field(default=None, max_length=200)
    session: str | None = Field(default=None, max_length=200)
    labels: Labels = Field(default_factory=dict)
    options: Options = Options()


class SettleBody(RequestModel):
    """What who continues a job says became of a step that nobody was sure of."""

    verdict: Literal["happened", "not_executed"]
    evidence: str = Field(min_length=1, max_length=10_000)
    result: Any = None
    break_glass: bool = False


class ContinuationBody(RequestModel):
    """The body of POST /jobs/{id}/continue; it may be left out: the plan is the earlier job's."""

    plan: dict[str, Any] | None = None
    options: Options = Options()
    settle: dict[str, SettleBody] = Field(default_factory=dict, max_length=100)


class CancelBody(RequestModel):
    """The body of POST /jobs/{id}/cancel; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)
    compensate: bool = False
    tenant: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    """Whose job it is; another one than the caller's only for who administers."""


class ReasonBody(RequestModel):
    """The body of POST /jobs/{id}/pause, /resume and /contracts/{execution_id}/cancel; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)


class SignalBody(RequestModel):
    """The body of POST /jobs/{id}/signal."""

    correlation_key: CorrelationKey
    payload: Any = None


class ResolveBody(RequestModel):
    """The body of POST /jobs/{id}/contracts/{execution_id}/resolve."""

    verdict: str = Field(pattern="^(happened|not_executed|retry)$")
    evidence: str = Field(min_length=1, max_length=10_000)
    result: Any = None
    break_glass: bool = False
    accept_code: HexDigits | None = None

    @model_validator(mode="after")
    def _accepts_what_runs_again(self) -> "ResolveBody":
        if self.accept_code is not None and self.verdict != "retry":
            raise ValueError("accept_code: only with the verdict retry")
        return self


class RespondBody(RequestModel):
    """The body of POST /ecs/respond."""

    request_id: str = Field(min_length=1, max_length=200)
    action: Action
    data: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = Field(default=None, max_length=2_000)
    break_glass: bool = False
    signature: str | None = Field(default=None, max_length=MAX_ARMORED)

    @model_validator(mode="after")
    def _says_why(self) -> "RespondBody":
        if self.break_glass and not self.comment:
            raise ValueError("comment: an emergency needs a reason")
        return self


class RequestBody(RequestModel):
    """The body of POST /ecs/continue."""

    request_id: str = Field(min_length=1, max_length=200)


class WorkerEndBody(RequestModel):
    """The body of POST /workers/{worker_id}/end; without an incarnation the one who lives is meant."""

    evidence: str = Field(min_length=1, max_length=1_000)
    incarnation: str | None = Field(default=None, min_length=1, max_length=64)


class ToolReleaseBody(RequestModel):
    """The body of POST /tools/{name}/release."""

    reason: str = Field(min_length=1, max_length=1_000)


# Who calls


class CallerView(ResponseModel):
    """Who the gateway takes the caller for; `delegation` is {principal, until, at}: in whose place he acts."""

    id: str
    tenant: str
    kind: str
    roles: tuple[str, ...]
    delegation: dict[str, Any] | None = None


# Jobs


class Submitted(ResponseModel):
    """A submission that was taken, where its job stands, and the job that it `continues`, or `undoes`.

    `receipt` is the gateway's signed word that it lies in the log, to be kept byte for byte (docs/receipts.md).
    """

    job_id: str
    status: str
    receipt: str | None = None
    continues: str | None = None
    undoes: str | None = None

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return self.status in _ENDED


class PauseInForce(ResponseModel):
    """Who paused a job, and why; the pauses of a job are numbered from 1."""

    number: int
    by: str
    reason: str | None = None


class FreezeInForce(ResponseModel):
    """What is frozen, by whom, since when and why; the freezes of a scope are numbered from 1."""

    tenant: str | None = None
    agent: str | None = None
    tool: str | None = None
    number: int
    by: str
    at: str
    reason: str | None = None


class JobSummary(ResponseModel):
    """A line of the list of jobs; `paused` and `frozen` say by whom and why, while it is."""

    job_id: str
    status: str
    created_at: str
    submitted_by: str
    tenant: str
    labels: dict[str, str] = Field(default_factory=dict)
    paused: PauseInForce | None = None
    frozen: FreezeInForce | None = None


class JobPage(ResponseModel):
    """Some jobs, newest first; `cursor` leads to the next ones."""

    jobs: tuple[JobSummary, ...]
    cursor: str | None = None


class StepView(ResponseModel):
    """Where one step stands: pending, running, waiting, completed, failed, rejected or cancelled.

    `request_id` is what a human is asked, where he is and has not answered; `via` says by whom it was settled.
    `parent` is the step whose code has planned it.
    """

    node_id: str
    tool: str
    state: str
    attempts: int = 0
    execution_id: str | None = None
    result_type: str | None = None
    external_id: str | None = None
    request_id: str | None = None
    reason: str | None = None
    effect: str | None = None
    via: str | None = None
    compensates: str | None = None
    depends_on: tuple[str, ...] = ()
    parent: str | None = None


class Continued(ResponseModel):
    """The job that a job continues, and the steps whose results it adopted."""

    job_id: str
    adopted: tuple[str, ...] = ()


class Job(JobSummary):
    """A job as its log says; `why` says in a sentence why it does not go on, or why it failed."""

    goal: str | None = None
    continues: Continued | None = None
    begun: BegunBy | None = None
    children: tuple[ChildJob, ...] = ()
    continued_as: str | None = None
    steps: tuple[StepView, ...] = ()
    why: str | None = None
    result: Any = None
    error: str | None = None
    compensated: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Completed, failed or cancelled."""
        return self.status in _ENDED


class JobEvent(ResponseModel):
    """A record of a job; `seq` counts from 1.

    `void`: it is none of the job's events, whatever its type says: not proved its writer's, or not to be read by the
    gateway. A stream leaves it out.
    """

    seq: int
    id: str
    type: str
    time: str
    source: str = ""
    subject: str
    partition: int = 0
    offset: int
    void: bool = False
    data: Any


class JobRecord(ResponseModel):
    """A record of a job as it lies in the log: key, each header's value, and its own value are base64."""

    seq: int
    topic: str
    partition: int
    offset: int
    key: str | None
    headers: tuple[tuple[str, str], ...]
    value: str


class Contract(ResponseModel):
    """An execution contract: what came of one call of a step, as its log says; how much of it, the `level` says."""

    execution_id: str | None
    node_id: str
    action_type: str
    status: str
    outcome: str | None
    has_effect: str
    duplicate_of: dict[str, Any] | None = None
    error_message: str | None = None
    transitions: tuple[dict[str, Any], ...] = ()


class ContractList(ResponseModel):
    """The execution contracts of a job."""

    contracts: tuple[Contract, ...]


class EffectPage(ResponseModel):
    """Effects of the tenant, newest first, each with the tree of its reasons; `cursor` leads to the next ones."""

    effects: tuple[dict[str, Any], ...]
    cursor: str | None = None


# Commands


class VoteCount(ResponseModel):
    """Who has said yes, or the same, where the rule asks for several; it counts when there are as many as needed."""

    given: tuple[str, ...] = ()
    needed: int


class Commanded(ResponseModel):
    """A command's answer: `event` is what the log answered; None if it had not within five seconds.

    `status` is what the job comes to; `execution_id`, `verdict` and `correlation_key` repeat what was asked for.
    `command_id` is in the `caused_by` of what follows from it; None where it stood before, or nobody said it so.
    `tenant` is the job's, where that is another than the caller's.
    """

    job_id: str
    tenant: str | None = None
    execution_id: str | None = None
    verdict: str | None = None
    correlation_key: str | None = None
    status: str | None = None
    event: str | None = None
    command_id: str | None = None
    paused: PauseInForce | None = None
    broke_glass: bool | None = None
    votes: VoteCount | None = None
    """Who says the same, where the rule asks for several."""


class Reconciled(ResponseModel):
    """What the external system says of a job's recorded effects; `effects` are the answers that came in time."""

    job_id: str
    command_id: str
    asked: int
    confirmed: int
    failed: int
    unverifiable: int
    verdict: str
    ok: bool
    effects: tuple[dict[str, Any], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every effect was answered for."""
        return self.confirmed + self.failed == self.asked


# Requests to humans


class Approval(ResponseModel):
    """An open request to a human: about a call (`approval`), or a form of the plan (`human`)."""

    request_id: str
    job_id: str
    submitted_by: str
    node_id: str
    kind: str
    title: str
    created_at: str
    expires_at: str | None = None
    votes: VoteCount | None = None


class ApprovalPage(ResponseModel):
    """Some open requests, oldest first; `cursor` leads to the next ones."""

    approvals: tuple[Approval, ...]
    cursor: str | None = None


class ToSign(ResponseModel):
    """What an approver signs of a request, and as whom; what he says of it comes behind (docs/approvals.md).

    `passkeys`: his that count now, as SSH writes public keys (base64): a page asks them, and knows by them who signed.
    """

    installation: str | None = None
    tenant: str
    job: str
    step: str
    request: str
    tool: str
    tool_version: str
    args_hash: str
    rule: str
    policy_hash: str | None = None
    approvals: int
    approver: str
    passkeys: tuple[str, ...] = ()


class AskedBy(ResponseModel):
    """The rule that asks for an approval and whom it names, as the request has recorded it; and the arguments' hash.

    What is not said is not there: without `approvers` nobody is named. `edited_by`: whose edit made the call.
    """

    args_hash: str
    rule: str | None = None
    approvers: tuple[str, ...] | None = None
    approver_roles: tuple[str, ...] | None = None
    approver_kinds: tuple[str, ...] | None = None
    approvals: int | None = None
    signed: bool | None = None
    self_approval: bool | None = None
    edited_by: str | None = None


class HumanRequest(ResponseModel):
    """A request with its form, and how it stands: waiting, approved, edited, rejected, answered, expired, cancelled.

    `asked_by` is there where a call is asked about, and not a form of the plan.
    """

    request: dict[str, Any]
    job_id: str
    node_id: str
    status: str
    execution_state: str
    votes: VoteCount | None = None
    asked_by: AskedBy | None = None
    to_sign: ToSign | None = None
    answer: dict[str, Any] | None = None


class RequestStanding(ResponseModel):
    """How an answered request stands."""

    job_id: str
    node_id: str
    status: str
    execution_state: str


class Responded(ResponseModel):
    """What became of an answer; an edit makes a new call, which `next_request_id` asks about."""

    request_id: str
    action: str
    event: str | None = None
    command_id: str | None = None
    next_request_id: str | None = None
    votes: VoteCount | None = None
    broke_glass: bool | None = None


# What is wrong


class Fault(ResponseModel):
    """Which rule is broken: `code` for programs, `message` for people; `details` names the field, or what stands."""

    code: str
    message: str
    details: dict[str, Any]


class Refusal(ResponseModel):
    """An answer other than yes."""

    error: Fault
