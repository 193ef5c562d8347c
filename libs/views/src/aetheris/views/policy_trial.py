"""What another policy would have said of calls that were decided on: judged again, from a job's records alone; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.fold.job_log import LoggedEvent, fold_event, logged_events, moment_of
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, RejectReason
from aetheris.protocol.planning.approvals import matter_of, votes_as_recorded
from aetheris.protocol.planning.budgets import Account
from aetheris.protocol.planning.gate import counted
from aetheris.protocol.planning.invocation import Invocation, NotReady, invocation
from aetheris.protocol.planning.policy import Policy, PolicyEffect, PolicyVerdict, Rule
from aetheris.protocol.planning.policy_facts import policy_facts

ALLOWED, DENIED, ASKED = "allow", "deny", "approval"
_BY_POLICY = frozenset({RejectReason.POLICY, RejectReason.BUDGET})


@dataclass(frozen=True, slots=True)
class OtherVerdict:
    """A call that would have been decided otherwise: what was decided, and what would have been, each with why."""

    job_id: str
    node_id: str
    tool: str
    offset: int
    time: str
    then: str
    then_by: str
    now: str
    now_by: str

    def to_json(self) -> dict[str, Any]:
        """Every field, under its name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Trial:
    """What has come of it so far, over any number of jobs."""

    policy: Policy
    since: str | None = None
    """RFC 3339: only what was decided from then on is compared."""
    calls: int = 0
    unjudged: int = 0
    """Calls whose arguments the records don't have any more."""
    differences: list[OtherVerdict] = field(default_factory=list[OtherVerdict])

    def judge(self, records: Iterable[Record], results: Mapping[str, Any]) -> None:
        """Judge a job, from its birth on; `results`: hash → a large result, raises KeyError where there is none."""
        job: JobState | None = None
        trial = _JobTrial(self, results)
        for logged in logged_events(records):
            if job is not None and logged.sequence is not None and isinstance(logged.event, ev.KeyEvent):
                trial.see(job, logged, logged.event)
            job, counts = fold_event(job, logged.event, logged.record.offset)
            if job is not None and counts and isinstance(logged.event, ev.KeyEvent):
                trial.follow(job, logged, logged.event)

    def is_within(self, time: str) -> bool:
        """Whether what was decided then is compared."""
        at, begin = moment_of(time), moment_of(self.since) if self.since is not None else None
        return begin is None or at is None or at >= begin


class _JobTrial:
    """One job: what each of its calls was told first, and what it would have been told."""

    def __init__(self, trial: Trial, results: Mapping[str, Any]) -> None:
        self._trial = trial
        self._results = results
        self._verdicts: dict[str, PolicyVerdict] = {}
        self._entries: dict[str, PlanEntry] = {}
        self._accounts: dict[str, Account] = {}

    def see(self, job: JobState, logged: LoggedEvent, event: ev.KeyEvent) -> None:
        """The next record about a call, before it is folded."""
        then = _decided(event)
        if then is None or event.idempotency_key in self._verdicts:
            return
        entry = job.entry(event.node_id)
        call = self._call(job, entry) if entry is not None else None
        if entry is None or call is None or call.key != event.idempotency_key:
            self._trial.unjudged += self._trial.is_within(logged.time)
            return
        tool, irreversible = entry.node.tool_name, entry.irreversible
        verdict = self._trial.policy.verdict(tool, irreversible, lambda: policy_facts(job, call))
        verdict = self._within(verdict, call)
        self._verdicts[call.key], self._entries[call.key] = verdict, entry
        if self._trial.is_within(logged.time):
            self._trial.calls += 1
            if then[0] != verdict.effect.value:
                self._differs(logged, event, entry, then, (verdict.effect.value, verdict.detail))

    def follow(self, job: JobState, logged: LoggedEvent, event: ev.KeyEvent) -> None:
        """It has been folded: who has approved may not be enough, and what had no effect gives its budget back."""
        key, state = event.idempotency_key, job.keys[event.idempotency_key]
        if isinstance(event, ev.ApprovalDecided) and event.decision is Decision.APPROVE:
            self._recount(job, logged, event, state)
        if state.status is KeyStatus.SETTLED and state.outcome is not Settled.SUCCESS and state.sure:
            for account in self._accounts.values():
                account.give_back(key)

    def _call(self, job: JobState, entry: PlanEntry) -> Invocation | None:
        try:
            return invocation(job, entry, self._results)
        except (NotReady, UnresolvedReference, InvalidArgs, LookupError):
            return None

    def _within(self, verdict: PolicyVerdict, call: Invocation) -> PolicyVerdict:
        rule = verdict.rule
        if rule.budget is None or verdict.effect is PolicyEffect.DENY:
            return verdict
        account, cost = self._accounts.setdefault(rule.name, Account()), rule.budget.cost(call.args)
        if cost is None or not account.allows(rule, call.key, cost):
            return PolicyVerdict(rule, PolicyEffect.DENY, f"{rule.name}: over its budget")
        account.take(rule, call.key, cost, 0.0)
        return verdict

    def _recount(self, job: JobState, logged: LoggedEvent, event: ev.ApprovalDecided, state: KeyState) -> None:
        """Whether those who have approved might, and are enough, where approval would have been asked for, too."""
        verdict, entry = self._verdicts.get(event.idempotency_key), self._entries.get(event.idempotency_key)
        if verdict is None or entry is None or state.requested is None or verdict.effect is not PolicyEffect.APPROVAL:
            return
        rule: Rule = verdict.rule
        deciders = rule.deciders(irreversible=entry.irreversible)
        matter = matter_of(state.requested, job.created, votes_as_recorded((*state.votes, _as_vote(event))))
        good = counted(deciders, matter)
        if len(good) < deciders.approvals and self._trial.is_within(logged.time):
            names = ", ".join(event.votes or (event.approver,))
            now = ("unapproved", f"{rule.name}: {len(good)} of {deciders.approvals} who may say yes have")
            self._differs(logged, event, entry, ("approved", names), now)

    def _differs(
        self, logged: LoggedEvent, event: ev.KeyEvent, entry: PlanEntry, then: tuple[str, str], now: tuple[str, str]
    ) -> None:
        place = (event.job_id, event.node_id, entry.node.tool_name, logged.record.offset, logged.time)
        self._trial.differences.append(OtherVerdict(*place, *then, *now))


def _decided(event: ev.KeyEvent) -> tuple[str, str] | None:
    """(what a record says the policy said of its call, by which rule); None where it is about something else."""
    match event:
        case ev.PolicyAllowed():
            return ALLOWED, event.rule
        case ev.ApprovalRequested():
            return ASKED, event.rule
        case ev.InvocationRejected(reason=reason) if reason in _BY_POLICY:
            return DENIED, event.detail or str(reason)
        case ev.ToolInvocationStarted(rule=rule) if rule is not None:
            return ALLOWED, rule
        case _:
            return None


def _as_vote(event: ev.ApprovalDecided) -> ev.ApprovalVoted:
    """Who has decided has said yes; who had before is counted once."""
    body = event.model_dump(include={"job_id", "node_id", "idempotency_key", "args_hash", "tool_version", "rule"})
    return ev.ApprovalVoted(**body, approver=event.approver, principal=event.principal, signature=event.signature)
