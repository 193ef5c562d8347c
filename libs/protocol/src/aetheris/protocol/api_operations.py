"""The part of the HTTP API (`api`) that operators read: tools, models, limits, accesses, workers."""

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from aetheris.protocol.api import FreezeInForce
from aetheris.protocol.api_models import RequestModel, ResponseModel
from aetheris.protocol.base.freeze_scope import NAME_LIMIT
from aetheris.protocol.base.hidden_values import LONGEST_SUBJECT
from aetheris.protocol.tables.policy_activations import MAX_POLICY_BYTES


class ToolList(ResponseModel):
    """The newest version of every tool, as it is registered; `quarantined` where its calls wait, `released` by whom."""

    tools: tuple[dict[str, Any], ...]


class ReleaseView(ResponseModel):
    """Who released a tool from quarantine last, why, and when."""

    by: str
    reason: str
    at: str


class ToolReleased(ResponseModel):
    """A tool whose calls wait no longer; what it failed before counts no more."""

    tool: str
    released: ReleaseView


class FreezeBody(RequestModel):
    """The body of POST /api/freezes and /api/freezes/end: an agent, a tool or a tenant.

    The agent, or the tool, is one of `tenant`, the caller's where none is named; a tool's `everywhere`: in all tenants.
    """

    agent: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    tool: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    tenant: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    everywhere: bool = False
    reason: str | None = Field(default=None, max_length=1_000)


class ActingView(ResponseModel):
    """A call that had started before its partition was frozen, and may still act."""

    job_id: str
    node_id: str
    tool: str
    execution_id: str


class FreezeView(FreezeInForce):
    """The last word on a freeze; `answered` of `partitions` keep to it; `acting`, and `more`, had started before."""

    frozen: bool
    answered: int
    partitions: int
    acting: tuple[ActingView, ...] = ()
    more: int = 0


class FreezeList(ResponseModel):
    """The freezes in force."""

    freezes: tuple[FreezeView, ...]


class SubjectBody(RequestModel):
    """The body of POST /api/subjects/erase, enrol, hold and release: a person, by the name that plans have.

    It is of `tenant`, the caller's where none is named.
    """

    subject: str = Field(min_length=1, max_length=LONGEST_SUBJECT)
    tenant: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)


class LoggedLine(ResponseModel):
    """A line of the log of seals, byte for byte, and the tlog-proof that it is in there."""

    line: str
    proof: str


class SubjectView(ResponseModel):
    """A person whose values are hidden: the pseudonym by which records name it, and how its key stands.

    `erased`: it is destroyed, as `lines` of the log of seals say; `held`: nobody may destroy it.
    """

    pseudonym: str
    erased: bool
    held: bool = False
    lines: tuple[LoggedLine, ...] = ()


class OpeningView(ResponseModel):
    """A hidden value in the clear, where it stands first, and the salt by which one can tell that it is that one."""

    event_id: str
    at: str
    """JSON Pointer into the event's data."""
    c: str
    salt: str
    value: Any


class OpeningList(ResponseModel):
    """Some of the `hidden` values of a job, opened; `cursor` leads to the next ones.

    Of these `erased` can't be opened any more, and `left_out` not here.
    """

    openings: tuple[OpeningView, ...]
    hidden: int
    erased: int
    left_out: int
    cursor: str | None = None


class UndoBody(RequestModel):
    """The body of POST /api/jobs/{id}/undo: which of its effects are meant; it may be left out."""

    tool: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    since: AwareDatetime | None = None


class UndoEffect(ResponseModel):
    """A step that has had its effect, or may have; `undo_tool` would undo it, job `job_id` does or did."""

    node_id: str
    tool: str
    at: str | None = None
    external_id: str | None = None
    standing: Literal["undoable", "undoing", "undone", "in_doubt", "not_undoable"]
    why: str | None = None
    job_id: str | None = None
    undo_tool: str | None = None


class UndoJob(ResponseModel):
    """A job's effects in the order in which they are undone; `why`: nothing of it can be undone now."""

    job_id: str
    status: str
    submitted_by: str
    effects: tuple[UndoEffect, ...]
    undone_by: tuple[str, ...] = ()
    why: str | None = None


class UndoPage(ResponseModel):
    """Some jobs with effects that are meant, newest first, maybe none; `cursor` leads to the next ones."""

    jobs: tuple[UndoJob, ...]
    cursor: str | None = None


class PolicyBody(RequestModel):
    """The body of POST /api/policies: the whole text of a policy."""

    policy: str = Field(min_length=1, max_length=MAX_POLICY_BYTES)
    reason: str | None = Field(default=None, max_length=1_000)
    instead_of: int | None = Field(default=None, ge=0)
    """The activation that is to be replaced, 0 for the configured policy: another one was not meant."""


class PolicyTrialBody(RequestModel):
    """The body of POST /api/policies/trial: the whole text of a policy, and from when on decisions are looked at."""

    policy: str = Field(min_length=1, max_length=MAX_POLICY_BYTES)
    since: AwareDatetime | None = None
    cursor: str | None = None


class OtherVerdictView(ResponseModel):
    """A call that would have been decided otherwise: what was decided, and what would have been, each with why.

    `approved` and `unapproved`: those who have said yes would not have been enough, or not those who may.
    """

    job_id: str
    node_id: str
    tool: str
    offset: int
    time: str
    then: Literal["allow", "deny", "approval", "approved"]
    then_by: str
    now: Literal["allow", "deny", "approval", "unapproved"]
    now_by: str


class PolicyTrialPage(ResponseModel):
    """What a policy would have said of some of the tenant's `jobs`, newest first; `cursor` leads to the next ones.

    Of `calls` that the policy was asked about `differ` would have been decided otherwise, of which `differences` has up
    to 200 a job; `unjudged` ones are not among them: their arguments are recorded no more. The jobs `left_out` took too
    long.
    """

    jobs: int
    calls: int
    unjudged: int
    differ: int
    differences: tuple[OtherVerdictView, ...]
    left_out: tuple[str, ...] = ()
    cursor: str | None = None


class ActivationSummary(ResponseModel):
    """Who activated a policy, when and why; activations are numbered from 1."""

    number: int
    policy_hash: str
    by: str
    at: str
    reason: str | None = None


class ActivationView(ActivationSummary):
    """The activation in force; the ledgers of `answered` of `partitions` decide by it."""

    policy: str
    answered: int
    partitions: int


class PolicyView(ResponseModel):
    """The policy that decides: None where none was activated, and the ledgers' configured one does."""

    active: ActivationView | None = None
    history: tuple[ActivationSummary, ...] = ()
    """Newest first."""


class RulesBody(RequestModel):
    """The body of POST /api/rules: under which version of the rules jobs are created from now on."""

    version: int = Field(ge=2)
    reason: str | None = Field(default=None, max_length=1_000)


class RulesOrderView(ResponseModel):
    """Who ordered a version of the rules, when and why; in `answered` of `partitions` jobs are created under it."""

    version: int
    by: str
    at: str
    reason: str | None = None
    answered: int
    partitions: int


class ServiceRules(ResponseModel):
    """A live process of a service, its version where it says so, and the versions of the rules that it knows."""

    service: str
    name: str
    version: str | None = None
    known: tuple[int, ...]


class RulesView(ResponseModel):
    """Under which version of the rules jobs are created: 1, or that of the last order."""

    version: int
    order: RulesOrderView | None = None
    services: tuple[ServiceRules, ...]


class ModelSummary(ResponseModel):
    """A model that jobs may name; `provider_model` is as its provider names it."""

    name: str
    provider_model: str
    priced: bool


class ModelList(ResponseModel):
    """The registered models."""

    models: tuple[ModelSummary, ...]


class LimitView(ResponseModel):
    """A limit, None where there is none, and how many more may come at once."""

    name: str
    limit: float | None
    left: int | None


class LimitsView(ResponseModel):
    """What a tenant and one of its principals may ask for; `open_jobs` counts the tenant's jobs that have not ended."""

    tenant: str
    limits: tuple[LimitView, ...]
    open_jobs: dict[str, int]


class AccessPage(ResponseModel):
    """Records of who came, in the log's order; `hidden` ones are another tenant's. `whole`: nothing was before them."""

    records: tuple[dict[str, Any], ...]
    cursor: str | None
    whole: bool


class ProcessView(ResponseModel):
    """A live process of a service, and its version where it says so."""

    name: str
    version: str | None = None


class ServiceHealth(ResponseModel):
    """Who is there of a service; `unknown`: why the brokers can't say, as while somebody joins, or has died."""

    service: str
    processes: tuple[ProcessView, ...]
    unknown: str | None = None


class TopicBacklog(ResponseModel):
    """How many records of a topic, in how many partitions, lie behind what a service says that it needs no more.

    They wait; or, where `is_kept`, belong to jobs that are open: so much it would read again at a start.
    """

    service: str
    topic: str
    records: int
    partitions: int
    is_kept: bool


class DeadLetterCount(ResponseModel):
    """How many records a topic of dead letters has; repeats, and notes of what was redriven, are among them."""

    topic: str
    records: int


class ExecutorHealth(ResponseModel):
    """A name of executors: whether one lives under it, its pool, and what it `serves`, each tool with its version."""

    worker_id: str
    is_live: bool
    since: str | None = None
    pool: str | None = None
    serves: tuple[str, ...] = ()


class CutPartition(ResponseModel):
    """A partition that lacks what a service had read of it, and `why` that is known; nothing of it runs on."""

    service: str
    topic: str
    partition: int
    why: str


class HealthView(ResponseModel):
    """How the parts of the system stood `at` that time; `log_cut`: as it was found in the minute before."""

    at: str
    services: tuple[ServiceHealth, ...]
    backlogs: tuple[TopicBacklog, ...]
    dead_letters: tuple[DeadLetterCount, ...]
    executors: tuple[ExecutorHealth, ...]
    log_cut: tuple[CutPartition, ...]


class StalledJob(ResponseModel):
    """An open job that stands still, why, and how many of its calls are in doubt, or parked."""

    job_id: str
    status: str
    created_at: str
    why: str
    in_doubt: int
    parked: int


class StalledJobs(ResponseModel):
    """The tenant's; `is_whole`: all of its open jobs were looked at."""

    jobs: tuple[StalledJob, ...]
    is_whole: bool


class LeasedCall(ResponseModel):
    """A call that is under way, who makes it, and for how long its lease lasts if nobody renews it.

    `ends_in_s`: None where there is no lease, as where its executor has died, or Redis lost it: that is no evidence.
    """

    job_id: str
    node_id: str
    tool: str
    worker_id: str
    token: int
    in_doubt: bool
    ends_in_s: float | None = None


class LeaseList(ResponseModel):
    """The calls that are under way, of a job or of the tenant's open jobs; `is_whole`: all of those were looked at."""

    leases: tuple[LeasedCall, ...]
    is_whole: bool


class WorkerSummary(ResponseModel):
    """A name of workers: the incarnation that lives under it, those that left it, how many have ended."""

    worker_id: str
    live: str | None
    since: str | None
    left: tuple[str, ...]
    ended: int


class WorkerList(ResponseModel):
    """Every name."""

    workers: tuple[WorkerSummary, ...]


class IncarnationEnd(ResponseModel):
    """An incarnation that can act no more, how that is known, and by whom."""

    incarnation: str
    how: str
    by: str | None = None
    evidence: str | None = None


class OpenCall(ResponseModel):
    """A call that a worker has declared, and that nobody has settled."""

    job_id: str
    node_id: str
    tool: str | None
    state: str
    incarnation: str | None


class WorkerView(ResponseModel):
    """A name of workers, with how each incarnation ended, and what it has open in the caller's newest jobs."""

    worker_id: str
    live: str | None
    since: str | None
    left: tuple[str, ...]
    ended: tuple[IncarnationEnd, ...]
    open: tuple[OpenCall, ...]


class WorkerEndReply(ResponseModel):
    """A person's word that an incarnation has ended; `ended` is what the topic says, None where it does not yet."""

    worker_id: str
    incarnation: str
    ended: IncarnationEnd | None
