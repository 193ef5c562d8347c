"""The tool invocation ledger proof: at most once, stated over raw history (docs/verification.md)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aetheris.proofs.history import SUCCESSES, History, InvocationRef
from aetheris.proofs.phases import Settlement
from aetheris.proofs.records import Fact, Violation, violation
from aetheris.proofs.reopenings import unproven_reopenings
from aetheris.proofs.validity import Validity
from aetheris.proofs.value_references import is_blob

DIRECT = frozenset({"executor", "catch_up"})
INDIRECT = frozenset({"probe", "human", "late"})
OWN_TRY = frozenset({"executor", "late"})

Reports = tuple[InvocationRef, list[Fact]]
"""What was told of a try, one of each statement."""


@dataclass(frozen=True, slots=True)
class LedgerProof:
    """`ok`: nothing is pending and no rule is broken. Notes are differences that no rule forbids."""

    pending_idempotency_keys: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    notes: tuple[Violation, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Does at-most-once hold, with nothing left open?"""
        return not self.pending_idempotency_keys and not self.violations

    def to_json(self) -> dict[str, Any]:
        """{ok, pending_idempotency_keys}."""
        return {"ok": self.ok, "pending_idempotency_keys": list(self.pending_idempotency_keys)}


def ledger_proof(validity: Validity) -> LedgerProof:
    """Judge every invocation of a history."""
    pending = [key for key in validity.started_keys() if validity.final(key) is None]
    repeated = [
        (named, _distinct(reported)) for named, reported in validity.history.finishes.items() if len(reported) > 1
    ]
    found = [*_unclosed(validity, pending), *_reports_disagree(repeated)]
    for rule in (_second_successes, _unstarted, _contradictions, unproven_reopenings):
        found.extend(rule(validity))
    for rule in (_reused_invocations, _moved_keys, _other_tools, _wrong_hashes):
        found.extend(rule(validity))
    notes = (*_byte_differences(repeated), *_unproven(validity))
    return LedgerProof(tuple(sorted(pending)), tuple(sorted(found)), tuple(sorted(notes)))


def _unclosed(validity: Validity, pending: Iterable[str]) -> Iterator[Violation]:
    """A job that has ended leaves no try open."""
    if validity.history.end is None:
        return
    for key in pending:
        for start in validity.valid[key]:
            if validity.handover(start) is None:
                yield violation(
                    "unclosed_start", start, f"the job has ended, but try {start.invocation_id} of key {key} has no end"
                )


def _reports_disagree(repeated: Iterable[Reports]) -> Iterator[Violation]:
    """Each report is held against the first that says otherwise, so that many cost no more than one by one."""
    for (key, invocation_id), reports in repeated:
        direct, indirect, heard = _Heard(), _Heard(), _Heard()
        for report in reports:
            if _via(report) in DIRECT:
                rule, other = "reports_disagree", direct.other_than(_stated(report))
                if other is not None:
                    yield _differing(rule, other, report, key, invocation_id)
            truths = heard if _via(report) in INDIRECT else indirect
            other = truths.other_than(_took_effect(report))
            if other is not None:
                yield _differing("truth_differs", other, report, key, invocation_id)
            if _via(report) in DIRECT:
                direct.add(_stated(report), report)
            if _via(report) in INDIRECT:
                indirect.add(_took_effect(report), report)
            heard.add(_took_effect(report), report)


def _differing(rule: str, first: Fact, second: Fact, key: str, invocation_id: str) -> Violation:
    said = f"try {invocation_id} of key {key} is {_saying(first)}, then {_saying(second)}"
    return violation(rule, second, said)


def _byte_differences(repeated: Iterable[Reports]) -> Iterator[Violation]:
    for (key, invocation_id), reports in repeated:
        indirect, heard = _Heard(), _Heard()
        for report in filter(_took_effect, reports):
            truths = heard if _via(report) in INDIRECT else indirect
            other = truths.other_than(_hash(report))
            if other is not None:
                said = f"{_via(other)} and {_via(report)} know other results of {invocation_id}, key {key}"
                yield violation("truth_bytes_differ", report, said)
            if _via(report) in INDIRECT:
                indirect.add(_hash(report), report)
            heard.add(_hash(report), report)


class _Heard:
    """The first report, and the first that says something else: one of the two differs from any other that does."""

    def __init__(self) -> None:
        self._known: list[tuple[object, Fact]] = []

    def add(self, said: object, report: Fact) -> None:
        if not self._known or (len(self._known) == 1 and self._known[0][0] != said):
            self._known.append((said, report))

    def other_than(self, said: object) -> Fact | None:
        return next((report for one, report in self._known if one != said), None)


def _unproven(validity: Validity) -> Iterator[Violation]:
    """No report: it changes nothing, and whoever wrote it was not the try."""
    for fact in validity.history.unproven.values():
        yield violation("unproven_report", fact, f"what is said of try {fact.invocation_id} does not have its word")


def _second_successes(validity: Validity) -> Iterator[Violation]:
    """At most one invocation of a key succeeds, unless the external system can't have seen two effects."""
    for key, starts in validity.valid.items():
        winners = _succeeding_starts(validity, key) if len(starts) > 1 else ()
        for (first, _), (second, success) in pairwise(winners):
            if not _harmless(validity, first, second):
                yield violation(
                    "second_success",
                    success,
                    f"key {key} succeeds under nonce {first.invocation_id} and under {second.invocation_id}",
                )


def _succeeding_starts(validity: Validity, key: str) -> list[tuple[Fact, Fact]]:
    """The valid starts of a key whose invocation succeeds, each with its first success, in order of success."""
    starts = {start.invocation_id: start for start in validity.valid[key]}
    found: list[tuple[Fact, Fact]] = []
    for invocation_id, start in starts.items():
        success = next((fact for fact in _successes(validity, key, invocation_id) if fact.at > start.at), None)
        if success is not None:
            found.append((start, success))
    return sorted(found, key=lambda pair: pair[1].at)


def _successes(validity: Validity, key: str, invocation_id: str) -> Iterator[Fact]:
    return (fact for fact in validity.history.finishes.get((key, invocation_id), []) if _took_effect(fact))


def _harmless(validity: Validity, first: Fact, second: Fact) -> bool:
    pinned = [validity.planned(start).tool for start in (first, second)]
    kinds = {str(tool.get("effect_class")) for tool in pinned}
    if first.text("kind") in ("llm", "time", "random") and not any(pinned):
        return True
    same = first.text("external_key") == second.text("external_key")
    return kinds == {"pure"} or (kinds == {"idempotent"} and same)


def _unstarted(validity: Validity) -> Iterator[Violation]:
    """No success names an invocation that was never validly started."""
    unfounded = [
        fact
        for reports in validity.history.finishes.values()
        for fact in reports
        if _took_effect(fact) and not _started(validity, fact)
    ]
    if not unfounded:
        return
    void: dict[InvocationRef, list[str]] = {}
    for start in validity.history.starts:
        void.setdefault((start.key, start.invocation_id), []).extend(validity.void_reasons(start))
    for fact in unfounded:
        reasons = ", ".join(dict.fromkeys(void.get((fact.key, fact.invocation_id), []))) or "no start precedes it"
        yield violation(
            "success_without_valid_start",
            fact,
            f"try {fact.invocation_id} of key {fact.key} succeeds, but never validly started: {reasons}",
        )


def _started(validity: Validity, report: Fact) -> bool:
    """Was the try that a report is about validly started before it?"""
    for start in validity.valid.get(report.key, ()):
        if start.invocation_id == report.invocation_id:
            return start.at < report.at
    return False


def _contradictions(validity: Validity) -> Iterator[Violation]:
    """A success after its key was settled as anything else."""
    for key in validity.started_keys():
        settled = validity.final(key)
        if settled is None or settled.succeeded:
            continue
        for start, success in _succeeding_starts(validity, key):
            if success.at > settled.fact.at and not _excused(validity, settled, start):
                yield violation(
                    "contradicts_settlement",
                    success,
                    f"try {start.invocation_id} succeeds, "
                    f"but key {key} is {settled.outcome} by {settled.fact.event_id}",
                )


def _excused(validity: Validity, settled: Settlement, start: Fact) -> bool:
    """What a try says of itself binds no other try of a pure tool, or of one that deduplicates."""
    if settled.fact.text("via") not in OWN_TRY or settled.fact.invocation_id == start.invocation_id:
        return False
    settler = next(item for item in validity.valid[start.key] if item.invocation_id == settled.fact.invocation_id)
    return _harmless(validity, settler, start)


def _reused_invocations(validity: Validity) -> Iterator[Violation]:
    """Every invocation has a fresh id."""
    for invocation_id, starts in validity.valid_by_invocation.items():
        for start in starts[1:]:
            yield violation(
                "nonce_reused", start, f"nonce {invocation_id} was started before, by event {starts[0].event_id}"
            )


def _moved_keys(validity: Validity) -> Iterator[Violation]:
    """A key names one call of one node, whatever the try."""
    for key, starts in validity.valid.items():
        for start in starts[1:]:
            if _identity(start) != _identity(starts[0]):
                yield violation("key_moved", start, f"key {key} names another call than in event {starts[0].event_id}")


def _identity(start: Fact) -> tuple[Any, ...]:
    return tuple(start.body.get(name) for name in ("node_id", "tool_name", "args_hash"))


def _other_tools(validity: Validity) -> Iterator[Violation]:
    """What is started is the plan's tool, in the version that the plan pins."""
    for starts in validity.valid.values():
        for start in starts:
            planned, version = validity.planned(start), start.text("tool_version")
            named = planned.entry.get("tool") or planned.entry.get("kind")
            if start.text("tool_name") != named or version != planned.tool.get("version", version):
                yield violation("other_tool", start, f"node {start.node} starts another tool than its plan pins")


def _wrong_hashes(validity: Validity) -> Iterator[Violation]:
    """A recorded result has the hash that is recorded with it."""
    for reports in validity.history.finishes.values():
        for fact in reports:
            if _took_effect(fact) and not _names_blob(fact) and not _hash_holds(validity.history, fact):
                yield violation(
                    "output_hash_mismatch", fact, f"output_hash is not the result's, try {fact.invocation_id}"
                )


def _hash_holds(history: History, fact: Fact) -> bool:
    return _hash(fact) == history.hash_of(fact, "result") != ""


def _names_blob(fact: Fact) -> bool:
    return fact.body.get("result") is None and is_blob(fact.body.get("result_ref"))


def _distinct(reports: list[Fact]) -> list[Fact]:
    """One of each statement: a writer may repeat itself without end."""
    found: dict[tuple[str, str, str], Fact] = {}
    for fact in reports:
        found.setdefault((_via(fact), *_stated(fact)), fact)
    return list(found.values())


def _stated(fact: Fact) -> tuple[str, str]:
    return fact.outcome, _hash(fact)


def _saying(fact: Fact) -> str:
    return f"{fact.body.get('outcome')} by {_via(fact)}"


def _via(fact: Fact) -> str:
    return fact.text("via") or "executor"


def _hash(fact: Fact) -> str:
    return fact.text("output_hash") if _took_effect(fact) else ""


def _took_effect(fact: Fact) -> bool:
    return fact.outcome in SUCCESSES
