"""What jobs spent, put together: by rule, for each agent and for the tenant, beside the limits of one job. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aetheris.protocol.api_budgets import AnswersSpending, BudgetsView, GroupSpending, JobSpending, RuleSpending
from aetheris.protocol.planning.answers import Spent
from aetheris.protocol.planning.policy import Budget, Policy
from aetheris.views.spending import RuleCharges, Spending

Budgets = Mapping[str, Budget]
"""By rule."""
_CALLS = "calls"


@dataclass(frozen=True, slots=True)
class SpentJob:
    """One job of the list, and what it spent."""

    job_id: str
    status: str
    created_at: str
    spending: Spending

    @property
    def has_spent(self) -> bool:
        """Whether it took anything of any budget or limit."""
        return bool(self.spending.rules) or self.spending.answers.tokens > 0


def budgets_of(policy: Policy) -> Budgets:
    """Those of a policy's rules."""
    return {rule.name: rule.budget for rule in policy.rules if rule.budget is not None}


def spendings(
    jobs: Iterable[SpentJob], tenant: str, budgets: Budgets, looked_at: int, *, is_whole: bool
) -> BudgetsView:
    """Of those jobs, each for itself and together."""
    spent = [job for job in jobs if job.has_spent]
    by_agent: dict[str, list[SpentJob]] = defaultdict(list)
    for job in spent:
        by_agent[job.spending.agent].append(job)
    return BudgetsView(
        tenant=_together(tenant, spent, budgets),
        agents=tuple(_together(name, by_agent[name], budgets) for name in sorted(by_agent)),
        jobs=tuple(_job(job, budgets) for job in spent),
        looked_at=looked_at,
        is_whole=is_whole,
    )


def _job(job: SpentJob, budgets: Budgets) -> JobSpending:
    found, limits = job.spending, job.spending.limits
    answers = None
    if limits is not None:
        answers = AnswersSpending(
            tokens=found.answers.tokens,
            cost_usd=found.answers.cost_usd,
            tokens_limit=limits.tokens,
            cost_usd_limit=limits.cost_usd,
        )
    return JobSpending(
        job_id=job.job_id,
        status=job.status,
        created_at=job.created_at,
        agent=found.agent,
        rules=tuple(_rule(name, charges, budgets, limited=True) for name, charges in sorted(found.rules.items())),
        answers=answers,
    )


def _together(name: str, jobs: Sequence[SpentJob], budgets: Budgets) -> GroupSpending:
    """No limit stands beside what several jobs spent: there is none."""
    rules: dict[str, RuleCharges] = {}
    for job in jobs:
        for rule, charges in job.spending.rules.items():
            before = rules.get(rule, RuleCharges(0, 0.0))
            rules[rule] = RuleCharges(before.calls + charges.calls, before.spent + charges.spent)
    answered = [job.spending.answers for job in jobs if job.spending.limits is not None]
    return GroupSpending(
        name=name,
        jobs=len(jobs),
        rules=tuple(_rule(rule, rules[rule], budgets, limited=False) for rule in sorted(rules)),
        answers=_summed(answered) if answered else None,
    )


def _summed(answers: Iterable[Spent]) -> AnswersSpending:
    tokens, cost_usd = 0, 0.0
    is_known = True
    for one in answers:
        tokens += one.tokens
        cost_usd += one.cost_usd or 0.0
        is_known = is_known and one.cost_usd is not None
    return AnswersSpending(tokens=tokens, cost_usd=cost_usd if is_known else None)


def _rule(name: str, charges: RuleCharges, budgets: Budgets, *, limited: bool) -> RuleSpending:
    budget = budgets.get(name)
    counts = None if budget is None else budget.amount or _CALLS
    limit = budget.limit if budget is not None and limited else None
    return RuleSpending(rule=name, calls=charges.calls, spent=charges.spent, limit=limit, counts=counts)
