"""What a job's calls have taken of their rules' budgets, and its model's answers of its limits, as its log says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import fold_event, logged_events
from aetheris.protocol.fold.state import JobState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.plan.prompts import Limits
from aetheris.protocol.planning.answers import NOTHING_SPENT, Spent
from aetheris.protocol.planning.budgets import Account


@dataclass(frozen=True, slots=True)
class RuleCharges:
    """So many calls, and what they come to: in calls, or in the amount that the rule's budget sums."""

    calls: int
    spent: float


@dataclass(frozen=True, slots=True)
class Spending:
    """Of one job; `agent` as the submission names it, else who submitted it. `limits`: of a job that a model plans."""

    agent: str
    rules: Mapping[str, RuleCharges]
    answers: Spent
    limits: Limits | None


def spending(records: Iterable[Record]) -> Spending | None:
    """Of a job's records; None where nothing proves that it was created."""
    job: JobState | None = None
    accounts: dict[str, Account] = {}
    answers = NOTHING_SPENT
    for logged in logged_events(records):
        job, counts = fold_event(job, logged.event, logged.record.offset)
        if job is None or not counts:
            continue
        if isinstance(logged.event, ev.ToolInvocationFinished) and logged.event.usage is not None:
            answers = answers.plus(logged.event.usage)
        if isinstance(logged.event, ev.KeyEvent):
            _follow(job, accounts, logged.event)
    if job is None:
        return None
    rules = {
        rule: RuleCharges(len(account.taken), account.spent) for rule, account in accounts.items() if account.taken
    }
    brief = job.created.brief
    agent = job.created.agent or job.created.submitted_by
    return Spending(agent, rules, answers, brief.limits if brief is not None else None)


def _follow(job: JobState, accounts: dict[str, Account], event: ev.KeyEvent) -> None:
    """A charge, or what gives it back: as ledgers count them, by whatever limit each was let."""
    if isinstance(event, ev.PolicyAllowed | ev.ApprovalRequested) and event.cost is not None:
        accounts.setdefault(event.rule, Account()).take(None, event.idempotency_key, event.cost, 0.0)
    state = job.keys.get(event.idempotency_key)
    if state is None:
        return
    is_denied = isinstance(event, ev.ApprovalDecided) and event.decision is not Decision.APPROVE
    has_failed = state.status is KeyStatus.SETTLED and state.outcome is not Settled.SUCCESS and state.sure
    if has_failed or (is_denied and not state.unresolved):
        for account in accounts.values():
            account.give_back(event.idempotency_key)
