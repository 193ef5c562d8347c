"""The part of the HTTP API (`api`) that says what was spent: by jobs, agents and a tenant; and tenants' limits."""

from aetheris.protocol.api_models import ResponseModel
from aetheris.protocol.api_operations import LimitView


class RuleSpending(ResponseModel):
    """What calls took of a rule's budget: `spent` of `limit`, in calls, or in the argument that `counts` names.

    The limit is that of the policy that decides now, for one job; None: it has none under this name.
    """

    rule: str
    calls: int
    spent: float
    limit: float | None = None
    counts: str | None = None


class AnswersSpending(ResponseModel):
    """What a model's answers took; `cost_usd`: None where a price is not known. The limits are those of one job."""

    tokens: int
    cost_usd: float | None
    tokens_limit: int | None = None
    cost_usd_limit: float | None = None


class JobSpending(ResponseModel):
    """A job that has spent something; `agent` as the submission names it, else who submitted it."""

    job_id: str
    status: str
    created_at: str
    agent: str
    rules: tuple[RuleSpending, ...]
    answers: AnswersSpending | None = None


class GroupSpending(ResponseModel):
    """What `jobs` jobs spent together; nothing limits that: each budget is of one job."""

    name: str
    jobs: int
    rules: tuple[RuleSpending, ...]
    answers: AnswersSpending | None = None


class BudgetsView(ResponseModel):
    """What the tenant's `looked_at` newest jobs spent; `is_whole`: there are no others since that time."""

    tenant: GroupSpending
    agents: tuple[GroupSpending, ...]
    jobs: tuple[JobSpending, ...]
    looked_at: int
    is_whole: bool


class TenantQuotas(ResponseModel):
    """A tenant's limits, what of each is left (of a principal's: not said), and its jobs that have not ended."""

    tenant: str
    limits: tuple[LimitView, ...]
    open_jobs: dict[str, int]


class QuotaList(ResponseModel):
    """Those of every tenant that is known of; `left_out` others."""

    tenants: tuple[TenantQuotas, ...]
    left_out: int
