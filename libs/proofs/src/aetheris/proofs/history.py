"""A job's history, indexed by what its records are about."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from aetheris.proofs.plans import Plans
from aetheris.proofs.records import Fact

Try = tuple[str, str]
"""(idempotency key, nonce)."""

TERMINAL = frozenset({"job_completed", "job_failed", "job_cancelled"})
SUCCESSES = frozenset({"success", "compensatable_failure"})
RETRYABLE = "retryable_failure"
PERMANENT = "permanent_failure"


class History:
    """Indexes over facts in log order. It judges nothing."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts: list[Fact] = []
        self.starts: list[Fact] = []
        self.finishes: dict[Try, list[Fact]] = defaultdict(list)
        self.retries: dict[Try, list[int]] = defaultdict(list)
        self.parks: dict[Try, list[int]] = defaultdict(list)
        self.reopens: dict[Try, list[Fact]] = defaultdict(list)
        self.closings: dict[str, list[Fact]] = defaultdict(list)
        self.decisions: dict[str, Fact] = {}
        self.allowances: dict[str, list[Fact]] = defaultdict(list)
        self.commits: dict[str, list[Fact]] = defaultdict(list)
        self.nodes_finished: list[Fact] = []
        self.waits_completed: dict[str, Fact] = {}
        self.seals: list[Fact] = []
        self.stops: list[Fact] = []
        self.plans = Plans()
        self.created: Fact | None = None
        self.first_plan: Fact | None = None
        self.first_decision: Fact | None = None
        self.end: Fact | None = None
        self._takers: dict[str, Callable[[Fact], None]] = {
            "tool_invocation_started": self.starts.append,
            "tool_invocation_finished": self._finished,
            "invocation_rejected": lambda fact: self.closings[fact.key].append(fact),
            "invocation_parked": lambda fact: self.parks[fact.key, fact.nonce].append(fact.at),
            "invocation_reopened": lambda fact: self.reopens[fact.key, fact.nonce].append(fact),
            "approval_decided": lambda fact: self._first(self.decisions, fact.key, fact),
            "policy_allowed": lambda fact: self.allowances[fact.key].append(fact),
            "command_committed": lambda fact: self.commits[fact.key].append(fact),
            "node_finished": self.nodes_finished.append,
            "wait_completed": lambda fact: self._first(self.waits_completed, fact.node, fact),
            "job_sealed": self.seals.append,
            "job_stopping": self.stops.append,
            "plan_generated": self._planned,
            "decision_snapshot": self._decided,
            "job_created": self._born,
            **dict.fromkeys(TERMINAL, self._ended),
        }
        for fact in facts:
            self.add(fact)

    def add(self, fact: Fact) -> None:
        """Take the next fact."""
        self.facts.append(fact)
        taker = self._takers.get(fact.type)
        if taker is not None:
            taker(fact)

    @staticmethod
    def _first(index: dict[str, Fact], name: str, fact: Fact) -> None:
        index.setdefault(name, fact)

    def _finished(self, fact: Fact) -> None:
        self.finishes[fact.key, fact.nonce].append(fact)
        if fact.body.get("outcome") == RETRYABLE:
            self.retries[fact.key, fact.nonce].append(fact.at)
        else:
            self.closings[fact.key].append(fact)

    def _planned(self, fact: Fact) -> None:
        self.plans.add(fact)
        self.first_plan = self.first_plan or fact

    def _decided(self, fact: Fact) -> None:
        self.first_decision = self.first_decision or fact

    def _born(self, fact: Fact) -> None:
        self.created = self.created or fact

    def _ended(self, fact: Fact) -> None:
        self.end = self.end or fact
