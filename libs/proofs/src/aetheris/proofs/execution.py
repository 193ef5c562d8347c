"""Execution hash and outcome hash: what ran, and what came of it (docs/verification.md)."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.history import History
from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.validity import Validity
from aetheris.proofs.value_references import by_meaning

LoadBlob = Callable[[str], bytes]
"""hex SHA-256 → bytes; raises LookupError or OSError for what is not there."""


@dataclass(frozen=True, slots=True)
class OutcomeHash:
    """The hash, empty where a result could not be read, and what was wrong with results."""

    value: str
    violations: tuple[Violation, ...] = ()


def execution_hash(history: History, upto: int | None = None) -> str:
    """hex SHA-256(ascii(plan_hash) + node_id ":" result_type "\\n" for each node_finished in log order).

    Over the first `upto` records. Empty where no record says what was planned.
    """
    limit = len(history.facts) if upto is None else upto
    plan = plan_hash(history, limit)
    if not plan:
        return ""
    finished = [fact for fact in _once(history.nodes_finished) if fact.at < limit]
    lines = "".join([f"{fact.node}:{fact.text('result_type')}\n" for fact in finished])
    return hashlib.sha256((plan + lines).encode(errors="surrogatepass")).hexdigest()


def plan_hash(history: History, limit: int) -> str:
    """The hash of the first plan: its task graph, else the first decision_snapshot, else job_created."""
    plan = history.first_plan
    if plan is not None and plan.at < limit:
        return history.hash_of(plan, "task_graph")
    for fact in (history.first_decision, history.created):
        if fact is not None and fact.at < limit:
            return hash_or_empty(fact.body)
    return ""


def plan_violations(history: History) -> Iterator[Violation]:
    """Plans whose plan_hash is not theirs, and second plans for a revision."""
    for fact in [history.facts[at] for at in sorted(history.plans.effective)]:
        part = "task_graph" if fact.body.get("revision") == 0 else "diff"
        if fact.text("plan_hash") != history.hash_of(fact, part):
            yield violation("plan_hash_mismatch", fact, f"plan_hash is not that of the {part}")


def outcome_hash(validity: Validity, load_blob: LoadBlob | None = None, upto: int | None = None) -> OutcomeHash:
    """hex SHA-256(JCS([[node_id, final result_type, output_hash], …])) over the last plan's nodes.

    Topological order; output_hash is that of the result without external_id and the tool's volatile fields.
    Over the first `upto` records. Empty where there is no plan.
    """
    history = validity.history
    limit = len(history.facts) if upto is None else upto
    revision = history.plans.in_force(limit)
    if revision < 0:
        return OutcomeHash("")
    last = {fact.node: fact for fact in history.nodes_finished if fact.at < limit}
    rows: list[list[str]] = []
    found: list[Violation] = []
    for node in history.plans.order(revision):
        finished, settling = last.get(node), _settling(validity, node, limit)
        if settling is None and history.plans.is_call(node):
            continue  # what code tried in vain, or only planned, is no outcome of it
        result_type = finished.text("result_type") if finished is not None else ""
        try:
            rows.append([node, result_type, _output(validity, node, finished, load_blob, settling)])
        except UnreadableResult as error:
            found.append(error.violation)
    return OutcomeHash("" if found else hash_or_empty(rows), tuple(found))


class UnreadableResult(Exception):
    """A recorded result that can't be had; `violation` says which and why."""

    def __init__(self, rule: str, fact: Fact, message: str) -> None:
        super().__init__(message)
        self.violation = violation(rule, fact, message)


def _output(validity: Validity, node: str, finished: Fact | None, load: LoadBlob | None, settling: Fact | None) -> str:
    if settling is None:
        return finished.text("output_hash") if finished is not None else ""
    start, plans = validity.valid_by_invocation[settling.invocation_id][0], validity.history.plans
    is_its = start.node == node
    pinned = validity.planned(start).tool if is_its else plans.tool_of(node, plans.in_force(start.at))
    result = read_result(settling, load)
    try:
        lasting = by_meaning(_lasting(result, pinned))
    except RecursionError:
        raise _not_canonical(settling) from None
    is_recorded = lasting is settling.body.get("result")
    text = validity.history.hash_of(settling, "result") if is_recorded else hash_or_empty(lasting)
    if not text:
        raise _not_canonical(settling)
    return text


def _not_canonical(settling: Fact) -> UnreadableResult:
    said = f"the result of try {settling.invocation_id} is not canonical"
    return UnreadableResult("not_canonical", settling, said)


def _settling(validity: Validity, node: str, limit: int) -> Fact | None:
    for key in validity.keys_of_node(node):
        settled = validity.settlement(key, limit)
        if settled is not None and settled.succeeded:
            return settled.fact
    return None


def _lasting(result: object, pinned: Body) -> object:
    """A result without what differs between two runs that did the same."""
    if not isinstance(result, dict):
        return result
    listed = pinned.get("volatile")
    names = cast("list[Any]", listed) if isinstance(listed, list) else []
    whole = cast("dict[str, Any]", result)
    if not names and "external_id" not in whole:
        return whole
    volatile = {"external_id", *map(str, names)}
    return whole if volatile.isdisjoint(whole) else {name: whole[name] for name in whole.keys() - volatile}


def read_result(fact: Fact, load: LoadBlob | None) -> object:
    """The raw result of a finished, from its payload or by its reference.

    Raises:
        UnreadableResult: the blob is missing, or isn't what its reference says.
    """
    ref = fact.body.get("result_ref")
    if not isinstance(ref, dict):
        return fact.body.get("result")
    reference = cast("Body", ref)
    blob = _load(fact, str(reference.get("sha256")), load)
    if hashlib.sha256(blob).hexdigest() != reference.get("sha256") or len(blob) != reference.get("size"):
        raise UnreadableResult(
            "blob_mismatch", fact, f"the blob of try {fact.invocation_id} is not what its reference says"
        )
    return _parsed(fact, blob)


def _load(fact: Fact, sha256: str, load: LoadBlob | None) -> bytes:
    if load is not None:
        try:
            return load(sha256)
        except (LookupError, FileNotFoundError):
            pass
    raise UnreadableResult("missing_blob", fact, f"the result of try {fact.invocation_id} is a blob that is not here")


def _parsed(fact: Fact, blob: bytes) -> object:
    try:
        result: object = json.loads(blob)
    except (ValueError, RecursionError):
        result = None
        readable = False
    else:
        readable = hash_or_empty(result) == fact.text("output_hash") != ""
    if not readable:
        raise UnreadableResult("output_hash_mismatch", fact, f"output_hash is not the blob's, try {fact.invocation_id}")
    return result


def _once(facts: list[Fact]) -> Iterator[Fact]:
    """A writer that repeats itself repeats the event_id; each counts once."""
    seen: set[str] = set()
    for fact in facts:
        if not fact.event_id or fact.event_id not in seen:
            seen.add(fact.event_id)
            yield fact
