"""A job's history, indexed by what its records are about."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from aetheris.proofs.authorship import Authorship
from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.plans import Plans, adopted_names, entries_of
from aetheris.proofs.records import Fact
from aetheris.proofs.words import is_proved

InvocationRef = tuple[str, str]
"""(idempotency key, invocation_id)."""

TERMINAL = frozenset({"job_completed", "job_failed", "job_cancelled"})
SUCCESSES = frozenset({"success", "compensatable_failure"})
NODE_WAITS = frozenset({"signal", "timer", "human"})
"""Waits that are a node's own work."""
RETRYABLE = "retryable_failure"
PERMANENT = "permanent_failure"


class History:
    """Indexes over facts in log order. It judges nothing."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:  # noqa: PLR0915  a line an index
        self.authors = Authorship()
        self.facts: list[Fact] = []
        self.starts: list[Fact] = []
        self.finishes: dict[InvocationRef, list[Fact]] = defaultdict(list)
        self.retries: dict[InvocationRef, list[int]] = defaultdict(list)
        self.parks: dict[InvocationRef, list[int]] = defaultdict(list)
        self.reopens: dict[InvocationRef, list[Fact]] = defaultdict(list)
        self.probes: dict[InvocationRef, list[Fact]] = defaultdict(list)
        self.workers_ended: dict[tuple[str, str], int] = {}
        """(worker, incarnation) → where its end is recorded first."""
        self.gone: dict[tuple[str, str], int] = {}
        """The same, but for the word of who submitted the job: he can't bring about another try of it."""
        self.ended_by_hand: list[Fact] = []
        self.returns: dict[InvocationRef, list[int]] = defaultdict(list)
        """Where a try says that its own code has raised and can act no more."""
        self.external: list[Fact] = []
        """Ends of calls that an external system has an id of."""
        self.claimed: list[Fact] = []
        """What isn't signed by who may write it: it says nothing."""
        self.references: list[Fact] = []
        """What names a large result, that lies elsewhere."""
        self.checkpoints: list[Fact] = []
        self.by_policy: list[Fact] = []
        """What a policy decided."""
        self.unproven: dict[int, Fact] = {}
        """By place, what is said of tries and proved by no word: it is as if nobody had said it."""
        self.closings: dict[str, list[Fact]] = defaultdict(list)
        self.decisions: dict[str, list[Fact]] = defaultdict(list)
        self.requests: dict[str, list[Fact]] = defaultdict(list)
        self.votes: dict[str, list[Fact]] = defaultdict(list)
        """Key → who said yes where several must."""
        self.resolution_votes: list[Fact] = []
        """Who said what became of a call, or accepts it, where several must."""
        self.edits: dict[str, list[Fact]] = defaultdict(list)
        """Node → the decisions that changed its arguments."""
        self.confirmations: list[Fact] = []
        """The waits for somebody to accept what could not be confirmed, and their ends."""
        self.allowances: dict[str, list[Fact]] = defaultdict(list)
        self.decided_nodes: dict[str, list[Fact]] = defaultdict(list)
        self.calls_planned: list[Fact] = []
        """What bodies plan."""
        self.workflows_accepted: list[Fact] = []
        self.commits: dict[str, list[Fact]] = defaultdict(list)
        self.nodes_finished: list[Fact] = []
        self.waits: dict[str, list[Fact]] = defaultdict(list)
        self.steps_compensated: list[Fact] = []
        self.seals: list[Fact] = []
        self.stops: list[Fact] = []
        self.pauses: list[Fact] = []
        """What pauses the job and what lets it go on: job_paused, job_resumed, the first cancel, the end."""
        self.freezes: list[Fact] = []
        """What begins and ends freezes of calls: job_frozen, job_unfrozen, the end."""
        self.plans = Plans()
        self.late_plans: list[Fact] = []
        """Plans behind a stop, and such as undo something: whether they count is for Validity to say."""
        self.cancel: Fact | None = None
        self.created: Fact | None = None
        self.first_plan: Fact | None = None
        self.first_decision: Fact | None = None
        self.end: Fact | None = None
        self._hashes: dict[tuple[int, str], str] = {}
        for fact in facts:
            self.add(fact)

    def add(self, fact: Fact) -> None:
        """Take the next fact."""
        self.facts.append(fact)
        if "result_ref" in fact.body:
            self.references.append(fact)
        taker = self._TAKERS.get(fact.type)
        if taker is not None:
            taker(self, fact)
        elif fact.claims:
            self.claimed.append(fact)

    def hash_of(self, fact: Fact, name: str) -> str:
        """As `hash_or_empty` of a field of a record; several rules ask for it, and it is computed once."""
        found = self._hashes.get((fact.at, name))
        if found is None:
            found = self._hashes[fact.at, name] = hash_or_empty(fact.body.get(name))
        return found

    def nodes_finished_of(self, node: str) -> list[Fact]:
        """What the planner says of a node."""
        return [fact for fact in self.nodes_finished if fact.node == node]

    def wait_end(self, node: str, at: int) -> Fact | None:
        """What ended a node's own wait before a position; None where it had not begun, or ended in vain first."""
        begun: Fact | None = None
        for fact in self.waits.get(node, ()):
            if fact.at >= at:
                break
            if fact.type == "job_waiting":
                begun = fact if begun is None or fact.key != begun.key else begun
            elif begun is not None and _ends(begun, fact):
                return fact if fact.type == "wait_completed" else None
        return None

    def _waits(self, fact: Fact) -> None:
        if not fact.node and fact.text("wait_type") == "confirmation":
            self.confirmations.append(fact)
        if fact.node and fact.text("wait_type") in NODE_WAITS:
            self.waits[fact.node].append(fact)

    def _allowed(self, fact: Fact) -> None:
        self.allowances[fact.key].append(fact)
        self.by_policy.append(fact)

    def _asked(self, fact: Fact) -> None:
        self.requests[fact.key].append(fact)
        self.by_policy.append(fact)

    def _rejected(self, fact: Fact) -> None:
        self.by_policy.append(fact)
        self.closings[fact.key].append(fact)
        if fact.node in self.waits:
            self.waits[fact.node].append(fact)

    def _answered(self, fact: Fact) -> None:
        self.decisions[fact.key].append(fact)
        self.decided_nodes[fact.node].append(fact)
        if fact.text("decision") == "edit":
            self.edits[fact.node].append(fact)

    def _worker_ended(self, fact: Fact) -> None:
        if fact.worker is None:
            return
        by_hand, said_by = fact.text("how") == "human", fact.body.get("by")
        if by_hand and fact.worker not in self.workers_ended:
            self.ended_by_hand.append(fact)
        self.workers_ended.setdefault(fact.worker, fact.at)
        submitted_by = self.created.body.get("submitted_by") if self.created is not None else None
        if not by_hand or said_by not in (None, submitted_by):
            self.gone.setdefault(fact.worker, fact.at)

    def _in_doubt(self, fact: Fact) -> None:
        if not is_proved(fact.type, fact.body):
            self.unproven[fact.at] = fact
        elif fact.body.get("returned") is True:
            self.returns[fact.key, fact.invocation_id].append(fact.at)

    def _finished(self, fact: Fact) -> None:
        if not is_proved(fact.type, fact.body):
            self.unproven[fact.at] = fact
            return
        self.finishes[fact.key, fact.invocation_id].append(fact)
        if fact.body.get("external_id") is not None:
            self.external.append(fact)
        if fact.outcome == RETRYABLE:
            self.retries[fact.key, fact.invocation_id].append(fact.at)
        else:
            self.closings[fact.key].append(fact)

    def _planned(self, fact: Fact) -> None:
        if self.stops or any(entry.get("compensates") for entry in entries_of(fact)):
            self.late_plans.append(fact)
        elif not self.plans.bodies:  # where nodes have bodies, what follows only undoes
            self.plans.add(fact)
        self.first_plan = self.first_plan or fact

    def _decided(self, fact: Fact) -> None:
        self.first_decision = self.first_decision or fact

    def _created(self, fact: Fact) -> None:
        if self.created is None:
            self.created = fact
            self.plans.adopted = adopted_names(fact.body.get("continues"))

    def _cancelled(self, fact: Fact) -> None:
        self.cancel = self.cancel or fact
        self.pauses.append(fact)

    def _ended(self, fact: Fact) -> None:
        self.end = self.end or fact
        self.pauses.append(fact)
        self.freezes.append(fact)

    # of the class: an instance that held its own methods would live on until the collector looks
    _TAKERS: ClassVar[Mapping[str, Callable[["History", Fact], None]]] = {
        "tool_invocation_started": lambda history, fact: history.starts.append(fact),
        "tool_invocation_finished": lambda history, fact: history._finished(fact),
        "invocation_rejected": lambda history, fact: history._rejected(fact),
        "invocation_parked": lambda history, fact: history.parks[fact.key, fact.invocation_id].append(fact.at),
        "invocation_reopened": lambda history, fact: history.reopens[fact.key, fact.invocation_id].append(fact),
        "invocation_probed": lambda history, fact: history.probes[fact.key, fact.invocation_id].append(fact),
        "invocation_in_doubt": lambda history, fact: history._in_doubt(fact),
        "worker_ended": lambda history, fact: history._worker_ended(fact),
        "approval_decided": lambda history, fact: history._answered(fact),
        "call_planned": lambda history, fact: history.calls_planned.append(fact),
        "workflow_accepted": lambda history, fact: history.workflows_accepted.append(fact),
        "approval_voted": lambda history, fact: history.votes[fact.key].append(fact),
        "resolution_voted": lambda history, fact: history.resolution_votes.append(fact),
        "approval_requested": lambda history, fact: history._asked(fact),
        "policy_allowed": lambda history, fact: history._allowed(fact),
        "command_committed": lambda history, fact: history.commits[fact.key].append(fact),
        "node_finished": lambda history, fact: history.nodes_finished.append(fact),
        "job_waiting": lambda history, fact: history._waits(fact),
        "wait_completed": lambda history, fact: history._waits(fact),
        "state_checkpointed": lambda history, fact: history.checkpoints.append(fact),
        "job_sealed": lambda history, fact: history.seals.append(fact),
        "job_stopping": lambda history, fact: history.stops.append(fact),
        "job_paused": lambda history, fact: history.pauses.append(fact),
        "job_resumed": lambda history, fact: history.pauses.append(fact),
        "job_frozen": lambda history, fact: history.freezes.append(fact),
        "job_unfrozen": lambda history, fact: history.freezes.append(fact),
        "cancel_requested": lambda history, fact: history._cancelled(fact),
        "plan_generated": lambda history, fact: history._planned(fact),
        "step_compensated": lambda history, fact: history.steps_compensated.append(fact),
        "decision_snapshot": lambda history, fact: history._decided(fact),
        "job_created": lambda history, fact: history._created(fact),
        **dict.fromkeys(TERMINAL, lambda history, fact: history._ended(fact)),
    }


def _ends(waiting: Fact, fact: Fact) -> bool:
    """Does it name this wait: its call, and where it is the wait's own end, its kind and what was waited for?"""
    if fact.key != waiting.key or fact.type == "invocation_rejected":
        return fact.key == waiting.key
    names = ("wait_type", "correlation_key")
    return all(fact.body.get(name) == waiting.body.get(name) for name in names)


def first_after(places: Sequence[int], at: int) -> int | None:
    """The first of places in a history, in order, that lies behind a position."""
    index = bisect_right(places, at)
    return places[index] if index < len(places) else None


def any_between(places: Sequence[int], after: int, before: int) -> bool:
    """Whether one of them lies between two positions."""
    first = first_after(places, after)
    return first is not None and first < before
