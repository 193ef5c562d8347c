"""Whether humans decided what they were asked, and were those who may: the gate, from the log (docs/approvals.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.validity import Validity, token_of

BOUND_TO = ("node_id", "args_hash", "tool_version", "rule")
"""What a decision repeats of its request: it holds for exactly that."""


@dataclass(frozen=True, slots=True)
class Reopening:
    """A call that a person had tried again: who, when he said so, and how he knew."""

    fact: Fact
    by: str
    evidence: Any

    def to_json(self) -> dict[str, Any]:
        """{node_id, idempotency_key, token, by, said_at, evidence, event_id, offset}."""
        return {
            "node_id": self.fact.node,
            "idempotency_key": self.fact.key,
            "token": self.fact.body.get("next_token"),
            "by": self.by,
            "said_at": self.fact.time,
            "evidence": self.evidence,
            "event_id": self.fact.event_id,
            "offset": self.fact.offset,
        }


@dataclass(frozen=True, slots=True)
class Emergency:
    """What a person decided alone, though the rule leaves it to others, or to several."""

    fact: Fact

    def to_json(self) -> dict[str, Any]:
        """{what, node_id, by, said_at, event_id, offset}."""
        by = _principal(self.fact).get("id")
        found = {"what": self.fact.type, "node_id": self.fact.body.get("node_id"), "by": by}
        return found | {"said_at": self.fact.time, "event_id": self.fact.event_id, "offset": self.fact.offset}


@dataclass(frozen=True, slots=True)
class DeclaredEnd:
    """A person's word that a worker could act no more, which nothing else bears out."""

    fact: Fact

    def to_json(self) -> dict[str, Any]:
        """{worker_id, incarnation, by, said_at, evidence, event_id, offset}."""
        body = {name: self.fact.body.get(name) for name in ("worker_id", "incarnation", "by", "evidence")}
        return {**body, "said_at": self.fact.time, "event_id": self.fact.event_id, "offset": self.fact.offset}


def gate_violations(validity: Validity) -> Iterator[Violation]:
    """Every word of a human that counted, held against the rule that the log has."""
    yield from _decided(validity)
    yield from _resolved(validity)
    yield from _accepted(validity)


def reopenings(validity: Validity) -> tuple[Reopening, ...]:
    """The calls that people had tried again, in log order."""
    found = (_reopening(fact) for key in validity.started_keys() for fact in _reopened_by_hand(validity, key))
    return tuple(sorted(found, key=lambda one: one.fact.at))


def emergencies(validity: Validity) -> tuple[Emergency, ...]:
    """Every word with which somebody broke the glass, in log order."""
    return tuple(Emergency(fact) for fact in validity.history.facts if breaks_glass(fact))


def _decided(validity: Validity) -> Iterator[Violation]:
    """The first decision about each request; later ones count nowhere."""
    end = len(validity.history.facts)
    for key in validity.history.decisions:
        askings = validity.askings(key, end)
        ends = [*(later.since for later in askings[1:]), end]
        for asking, until in zip(askings, ends, strict=True):
            decided = validity.decision(key, asking, until)
            if decided is None:
                continue
            requested = validity.request(key, asking, decided.at)
            if requested is None:
                yield violation("unasked_decision", decided, f"key {key} was decided, and nobody had asked")
            else:
                yield from _bound(requested, decided)
                yield from entitled(validity, requested, decided, decided.text("approver"))
                yield from _own_edit(validity, requested, decided)
                yield from _voted(validity, requested, decided)


def _bound(requested: Fact, decided: Fact) -> Iterator[Violation]:
    for name in BOUND_TO:
        if requested.body.get(name) != decided.body.get(name):
            yield violation("decision_differs", decided, f"the decision on key {decided.key} is about another {name}")


def entitled(validity: Validity, rule: Fact | None, statement: Fact, who: str) -> Iterator[Violation]:
    """By the rule as a record has it, if any has: not who submitted the job, and whom it names."""
    created, about = validity.history.created, f"key {statement.key}" if statement.key else "the job"
    own = created is not None and who == created.text("submitted_by")
    says: Body = rule.body if rule is not None else {}
    if own and says.get("self_approval") is not True:
        yield violation("self_approval", statement, f"who submitted the job decided on {about}")
    named = says.get("approvers") if not breaks_glass(statement) else None
    patterns = cast("list[object]", named) if isinstance(named, list) else None
    if patterns is not None and not any(fnmatchcase(who, str(pattern)) for pattern in patterns):
        yield violation("not_an_approver", statement, f"{about} was decided by somebody whom the policy doesn't name")
    tenant = created.text("tenant") if created is not None else ""
    if not _is_such(says, _principal(statement), who, tenant):
        yield violation("not_an_approver", statement, f"{about} was decided by what the policy doesn't let decide")


def _principal(statement: Fact) -> Body:
    """What is recorded of who said it, beside his name."""
    body = statement.body
    if statement.type == "job_created":
        continues = body.get("continues")
        body = cast("Body", continues) if isinstance(continues, dict) else {}
        return _mapping(body.get("said_by"))
    return _mapping(body.get("principal"))


def _mapping(found: object) -> Body:
    return cast("Body", found) if isinstance(found, dict) else {}


def _is_such(says: Body, principal: Body, who: str, tenant: str) -> bool:
    """Whether a principal is of a kind, and has a role, that the rule asks for; and is who it is said to be."""
    roles = principal.get("roles")
    held = cast("list[object]", roles) if isinstance(roles, list) else []
    if principal.get("id", who) != who or principal.get("tenant") not in (None, tenant):
        return False
    if principal.get("breaks_glass") is True:
        return "break_glass" in held and principal.get("kind") == "person"
    kinds, wanted = says.get("approver_kinds"), says.get("approver_roles")
    if isinstance(kinds, list) and principal.get("kind") not in kinds:
        return False
    return not isinstance(wanted, list) or any(role in held for role in cast("list[object]", wanted))


def breaks_glass(statement: Fact) -> bool:
    """Whether who says it says that this is an emergency."""
    return _principal(statement).get("breaks_glass") is True


def _voted(validity: Validity, requested: Fact, decided: Fact) -> Iterator[Violation]:
    """A yes where several must say it rests on as many votes, each by another and each his to give."""
    needed = requested.body.get("approvals")
    if not isinstance(needed, int) or isinstance(needed, bool) or decided.text("decision") != "approve":
        return
    if breaks_glass(decided):
        return
    cited = decided.body.get("votes")
    names = {str(name) for name in cast("list[object]", cited)} if isinstance(cited, list) else set[str]()
    good = {vote.text("approver") for vote in _votes(validity, requested, decided) if vote.text("approver") in names}
    if len(good) < needed:
        message = f"key {decided.key} was approved with {len(good)} votes of {needed} that are needed"
        yield violation("votes_missing", decided, message)


def _votes(validity: Validity, requested: Fact, decided: Fact) -> Iterator[Fact]:
    """The votes between a request and its decision that its voters might give."""
    for vote in validity.history.votes.get(decided.key, ()):
        if not requested.at < vote.at < decided.at or token_of(vote) != token_of(requested):
            continue
        found = (
            *_bound(requested, vote),
            *entitled(validity, requested, vote, vote.text("approver")),
            *_own_edit(validity, requested, vote),
        )
        if not found:
            yield vote


def _own_edit(validity: Validity, requested: Fact, decided: Fact) -> Iterator[Violation]:
    """By what the request says of its editor, and by who made these arguments."""
    history = validity.history
    if decided.body.get("decision", "approve") != "approve" or requested.body.get("self_approval") is True:
        return
    edits = history.edits.get(requested.node, ())
    made = [edit for edit in edits if edit.at < requested.at and _makes(validity, edit, requested)]
    editors = {requested.body.get("edited_by"), *(edit.body.get("approver") for edit in made[-1:])}
    if decided.text("approver") in editors - {None, ""}:
        yield violation("own_edit", decided, f"who edited the call of key {decided.key} approved it")


def _makes(validity: Validity, edit: Fact, requested: Fact) -> bool:
    return validity.history.hash_of(edit, "data") == requested.text("args_hash") != ""


def _resolved(validity: Validity) -> Iterator[Violation]:
    """What became of a parked call, by a person's word: another try, or its end. Anybody may cancel what waits."""
    for key in validity.started_keys():
        for reopened in _reopened_by_hand(validity, key):
            yield from _entitled_to_resolve(validity, reopened, _reopening(reopened).by)
        settled = validity.final(key)
        if settled is not None and settled.fact.text("via") == "human" and settled.fact.text("error") != "cancelled":
            yield from _entitled_to_resolve(validity, settled.fact, settled.fact.text("by"))


def _entitled_to_resolve(validity: Validity, statement: Fact, who: str) -> Iterator[Violation]:
    """By the rule that is recorded where it was parked, else by that of its request; without either nobody can say."""
    parked = validity.parked(statement.key, statement.at)
    if parked is None or parked.invocation_id != statement.invocation_id or not parked.text("rule"):
        parked = None
    rule = parked or validity.request(statement.key, validity.askings(statement.key, statement.at)[-1], statement.at)
    if rule is not None:
        yield from entitled(validity, rule, statement, who)


def _accepted(validity: Validity) -> Iterator[Violation]:
    """What could not be confirmed, and a person let pass."""
    begun: set[str] = set()
    waiting: Fact | None = None
    for fact in validity.history.confirmations:
        key = fact.text("correlation_key")
        if fact.type == "job_waiting":
            waiting = waiting if key in begun else fact
            begun.add(key)
        elif waiting is not None and fact.body.get("correlation_key") == waiting.body.get("correlation_key"):
            if waiting.text("rule"):
                yield from entitled(validity, waiting, fact, fact.text("by"))
            waiting = None


def _reopened_by_hand(validity: Validity, key: str) -> Iterator[Fact]:
    """The words by which a person had a key's call tried again."""
    for start in validity.valid[key]:
        end = validity.handover(start)
        if end is not None and end.by_hand and validity.settlement(key, end.at) is None:
            yield validity.history.facts[end.at]


def _reopening(reopened: Fact) -> Reopening:
    """His name and evidence are the first of what the record has as evidence."""
    named = reopened.body.get("evidence")
    parts = cast("list[object]", named) if isinstance(named, list) else []
    first: Body = cast("Mapping[str, Any]", parts[0]) if parts and isinstance(parts[0], dict) else {}
    who = first.get("by")
    return Reopening(reopened, who if isinstance(who, str) else "", first.get("evidence"))
