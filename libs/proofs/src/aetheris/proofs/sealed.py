"""Seals found in a history: do they hold, and what may follow them (docs/verification.md)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.proofs import seals
from aetheris.proofs.amendments import amends, grown
from aetheris.proofs.chain import VERSION, EventChain
from aetheris.proofs.disclosures import calls_root
from aetheris.proofs.execution import LoadBlob, OutcomeHash, execution_hash, outcome_hash
from aetheris.proofs.history import TERMINAL
from aetheris.proofs.phases import Phase, is_number
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.trust import SEAL, TrustedKey, keyring
from aetheris.proofs.validity import Validity

AFTER_SEAL = frozenset({"job_sealed", "effect_confirmed", "confirmation_failed"})
_UNSIGNED = frozenset({"seal_unknown_key", "seal_signature"})
KEY_EVENTS = frozenset({"tool_invocation_finished", "invocation_rejected", "invocation_parked", "invocation_reopened"})


@dataclass(frozen=True, slots=True)
class SealReport:
    """The first seal that holds, else the first; where amendments count, the last of them.

    `root` and `tree` are recomputed over its event_count records.
    """

    present: bool = False
    ok: bool = False
    event_count: int = 0
    root: str = ""
    tree: str = ""
    full_root: str = ""
    at: int = -1
    """Its place in the history."""

    def to_json(self) -> dict[str, Any]:
        """{present, ok, event_count, root, tree, full_root}."""
        return {
            "present": self.present,
            "ok": self.ok,
            "event_count": self.event_count,
            "root": self.root,
            "tree": self.tree,
            "full_root": self.full_root,
        }


class SealCheck:
    """Checks seals against a history with its chain.

    Only of those that a key signed, and of the first, costs the check their records: anybody may have written others.
    """

    def __init__(
        self,
        validity: Validity,
        chain: EventChain,
        keys: Iterable[TrustedKey],
        load_blob: LoadBlob | None,
        lines: Mapping[int, str] | None = None,
    ) -> None:
        """`lines`: by place, the hashes of the lines of seals, where amendments count."""
        self._validity = validity
        self._history = validity.history
        self._chain = chain
        self._keys = keyring(keys, SEAL)
        self._load_blob = load_blob
        self._lines = lines
        self.calls = RecomputedCalls(validity, load_blob)
        """What each call of the history is, computed once for all who ask."""
        self._outcomes: dict[int, OutcomeHash] = {}
        self._executions: dict[int, str] = {}
        self._calls_roots: dict[int, str | None] = {}

    def check(self) -> tuple[SealReport, list[Violation]]:
        """The seal that counts, every broken seal, and what must not follow a seal that holds."""
        full_root = self._chain.root(self._chain.count)
        stated = self._seals()
        judged = [(seal, list(self._broken(seal, first=seal is stated[0]))) for seal in stated]
        found = [broken for _, broken_rules in judged for broken in broken_rules]
        asked = judged if self._lines is None else judged[-1:]
        holding = next((seal for seal, broken_rules in asked if not broken_rules), None)
        chosen = holding or (asked[0][0] if asked else None)
        if chosen is None:
            return SealReport(full_root=full_root), found
        count = sealed_count(chosen)
        root, tree = (self._chain.root(count), self._chain.tree(count)) if 0 < count <= chosen.at else ("", "")
        if holding is not None:
            found.extend(self._after(count))
        return SealReport(True, holding is not None, count, root, tree, full_root, chosen.at), found

    def _seals(self) -> list[Fact]:
        """Where amendments count, those that amend each other: the last of them is asked for."""
        if self._lines is not None:
            return self._history.seals
        return [seal for seal in self._history.seals if amends(seal.body) is None]

    def outcome(self, count: int) -> OutcomeHash:
        """The outcome hash over the first `count` records."""
        if count not in self._outcomes:
            self._outcomes[count] = outcome_hash(self._validity, self._load_blob, count)
        return self._outcomes[count]

    def execution(self, count: int) -> str:
        """The execution hash over the first `count` records."""
        if count not in self._executions:
            self._executions[count] = execution_hash(self._history, count)
        return self._executions[count]

    def calls_root(self, count: int) -> str | None:
        """The root over the calls of the first `count` records (`disclosures.calls_root`)."""
        if count not in self._calls_roots:
            self._calls_roots[count] = calls_root(self._validity, self.calls, count)
        return self._calls_roots[count]

    def _broken(self, seal: Fact, *, first: bool) -> Iterator[Violation]:
        count = sealed_count(seal)
        if not 0 < count <= seal.at:
            yield violation("seal_count", seal, "the seal covers no prefix of what lies before it")
            return
        yield from self._chained(seal, count)
        unsigned = list(self._signature(seal))
        if first or not any(one.rule in _UNSIGNED for one in unsigned):
            yield from self._hashes(seal, count)
            yield from self._growth(seal)
        created, end = self._history.created, self._history.end
        if created is not None and seal.text("tenant") != created.text("tenant"):
            yield violation("seal_tenant", seal, "the seal names another tenant than job_created")
        if end is None or end.at >= count:
            yield violation("sealed_unfinished", seal, "the sealed prefix holds no end of the job")
        yield from unsigned

    def _chained(self, seal: Fact, count: int) -> Iterator[Violation]:
        is_chained = seal.text("root") == self._chain.root(count)
        if not is_chained:
            yield violation("seal_root", seal, f"the chain of the first {count} records has another root")
        if not is_number(seal.body.get("chain"), VERSION):
            yield violation("seal_chain", seal, f"it is over no chain of version {VERSION}")
        elif seal.text("tree") != self._chain.tree(count):
            beside = ": when or by whom one was written has changed, ids, types and payloads have not"
            said = f"the tree over the first {count} records has another root{beside if is_chained else ''}"
            yield violation("seal_tree", seal, said)

    def _hashes(self, seal: Fact, count: int) -> Iterator[Violation]:
        if seal.text("execution_hash") != self.execution(count):
            yield violation("seal_execution_hash", seal, f"the first {count} records have another execution_hash")
        outcome = self.outcome(count)
        if not outcome.violations and seal.text("outcome_hash") != outcome.value:
            yield violation("seal_outcome_hash", seal, f"the first {count} records have another outcome_hash")
        calls = self.calls_root(count)
        if calls is not None and seal.body.get("calls") not in (None, calls):
            yield violation("seal_calls", seal, f"the calls of the first {count} records have another root")

    def _growth(self, seal: Fact) -> Iterator[Violation]:
        """An amendment proves that the tree which it amends only grew."""
        named = amends(seal.body)
        if named is None or self._lines is None:
            return
        before = [one for one in self._history.seals if self._lines[one.at] == named and one.at < seal.at]
        if not before or not grown(self._chain, seal, sealed_count(before[0])):
            yield violation("seal_consistency", seal, "it proves no growth of the tree of the seal that it amends")

    def _signature(self, seal: Fact) -> Iterator[Violation]:
        key = self._keys.get(seal.text("key_id"))
        if key is None:
            yield violation("seal_unknown_key", seal, "the seal's key_id is none of the keys given")
        elif not seals.verify(seal.body, key.public_key):
            yield violation("seal_signature", seal, "the seal's signature is not its key's over its payload")
        elif (refusal := key.refusal(seal.text("sealed_at"))) is not None:
            yield violation(refusal[0], seal, refusal[1])

    def _after(self, count: int) -> Iterator[Violation]:
        """After a seal: only seals, confirmations, and what changes nothing."""
        finished = {_finish(fact) for fact in self._history.nodes_finished if fact.at < count}
        for fact in self._history.facts[count:]:
            if fact.type not in AFTER_SEAL and self._changes(fact, finished):
                yield violation("after_seal", fact, f"{fact.type} changes a sealed job")

    def _changes(self, fact: Fact, finished: set[tuple[str, str]]) -> bool:
        if fact.type == "tool_invocation_started":
            return self._validity.is_valid(fact)
        if fact.type in KEY_EVENTS:
            return self._moves_key(fact)
        if fact.type == "plan_generated":
            return fact.at in self._history.plans.effective
        if fact.type == "node_finished":
            return _finish(fact) not in finished
        return fact.type == "step_compensated" or (fact.type in TERMINAL and fact is self._history.end)

    def _moves_key(self, fact: Fact) -> bool:
        before, after = (self._standing(fact.key, at) for at in (fact.at, fact.at + 1))
        return before != after

    def _standing(self, key: str, at: int) -> tuple[Phase, frozenset[str]]:
        phase = self._validity.phase(key, at)
        return phase, frozenset() if phase is Phase.SETTLED else frozenset(self._validity.live(key, at))


def _finish(fact: Fact) -> tuple[str, str]:
    return fact.node, fact.text("result_type")


def sealed_count(seal: Fact) -> int:
    """How many records it says that it covers; 0 where it says none."""
    return covers(seal.body)


def covers(body: Body) -> int:
    """The same of a seal's payload."""
    count = body.get("event_count")
    return count if isinstance(count, int) and not isinstance(count, bool) else 0
