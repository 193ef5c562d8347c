"""Whether humans decided what they were asked, and were those who may: the gate, from the log (docs/approvals.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, cast

from aetheris.proofs.approver_signatures import Opened, TrustedSigner, given_to, opened, request_id, signed_text
from aetheris.proofs.history import PERMANENT
from aetheris.proofs.phases import token_of
from aetheris.proofs.records import Body, Fact, Violation, violation
from aetheris.proofs.validity import Validity

BOUND_TO = ("node_id", "args_hash", "tool_version", "rule")
"""What a decision repeats of its request: it holds for exactly that."""
_SIGNED = frozenset({"approval_decided", "approval_voted"})
_SIGNED_ELSEWHERE = _SIGNED | {"invocation_reopened"}
"""Words that can be signed; and a retry, which must be approved, and signed there, anew."""


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
class SignedWord:
    """What carries an approver's signature; whether that holds, the violations say. `known`: whether it is his key."""

    fact: Fact
    known: bool | None

    def to_json(self) -> dict[str, Any]:
        """{what, node_id, by, key, known, said_at, event_id, offset}; `known` is null where no signers were given."""
        found = {"what": self.fact.type, "node_id": self.fact.body.get("node_id"), "by": self.fact.text("approver")}
        found |= {"key": _key(self.fact), "known": self.known, "said_at": self.fact.time}
        return found | {"event_id": self.fact.event_id, "offset": self.fact.offset}


@dataclass(frozen=True, slots=True)
class DeclaredEnd:
    """A person's word that a worker could act no more, which nothing else bears out."""

    fact: Fact

    def to_json(self) -> dict[str, Any]:
        """{worker_id, incarnation, by, said_at, evidence, event_id, offset}."""
        body = {name: self.fact.body.get(name) for name in ("worker_id", "incarnation", "by", "evidence")}
        return {**body, "said_at": self.fact.time, "event_id": self.fact.event_id, "offset": self.fact.offset}


Signers = Sequence[TrustedSigner]


def gate_violations(validity: Validity, signers: Signers | None = None) -> Iterator[Violation]:
    """Every word of a human that counted, held against the rule that the log has.

    `signers` say whose key signs for whom; without them signatures are held against the keys that they name.
    """
    yield from _decided(validity, signers)
    yield from _resolved(validity)
    yield from _accepted(validity)


def reopenings(validity: Validity) -> tuple[Reopening, ...]:
    """The calls that people had tried again, in log order."""
    found = (reopening_of(fact) for key in validity.started_keys() for fact in _reopened_by_hand(validity, key))
    return tuple(sorted(found, key=lambda one: one.fact.at))


def emergencies(validity: Validity) -> tuple[Emergency, ...]:
    """Every word with which somebody broke the glass, in log order."""
    said = (fact for fact in validity.history.facts if "principal" in fact.body or fact.type == "job_created")
    return tuple(Emergency(fact) for fact in said if breaks_glass(fact))


def signed_words(validity: Validity, signers: Signers | None) -> tuple[SignedWord, ...]:
    """Every vote and decision with an approver's signature, in log order."""
    said = chain.from_iterable((*validity.history.votes.values(), *validity.history.decisions.values()))
    signed = sorted((fact for fact in said if _mapping(fact.body.get("signature"))), key=lambda fact: fact.at)
    return tuple(SignedWord(fact, None if signers is None else _is_known(fact, signers)) for fact in signed)


def _is_known(said: Fact, signers: Signers) -> bool:
    signature = opened(_mapping(said.body.get("signature")).get("armored"))
    if signature is None or signature.fingerprint != _key(said):
        return False
    return given_to(signers, signature.key, said.text("approver"), said.time)


def _decided(validity: Validity, signers: Signers | None) -> Iterator[Violation]:
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
                yield from entitled(validity, requested.body, decided, decided.text("approver"))
                yield from _own_edit(validity, requested, decided)
                yield from _unsigned(validity, requested, decided, signers)
                yield from _voted(validity, requested, decided, signers)


def _bound(requested: Fact, decided: Fact) -> Iterator[Violation]:
    for name in BOUND_TO:
        if requested.body.get(name) != decided.body.get(name):
            yield violation("decision_differs", decided, f"the decision on key {decided.key} is about another {name}")


def entitled(validity: Validity, says: Body, statement: Fact, who: str) -> Iterator[Violation]:
    """By the rule as a record says it: not who submitted the job, and whom it names."""
    created, about = validity.history.created, f"key {statement.key}" if statement.key else "the job"
    own = created is not None and created.text("submitted_by") in _voice(statement, who)
    if own and says.get("self_approval") is not True:
        yield violation("self_approval", statement, f"who submitted the job decided on {about}")
    named = says.get("approvers") if not breaks_glass(statement) else None
    patterns = cast("list[object]", named) if isinstance(named, list) else None
    name = str(_delegation(statement).get("principal", who))
    if patterns is not None and not any(fnmatchcase(name, str(pattern)) for pattern in patterns):
        yield violation("not_an_approver", statement, f"{about} was decided by somebody whom the policy doesn't name")
    if says.get("signed") is True and statement.type not in _SIGNED_ELSEWHERE:
        yield violation("not_signed", statement, f"{about} was decided by a word that can't be signed, as it must be")
    tenant = created.text("tenant") if created is not None else ""
    if not _is_such(says, _principal(statement), who, tenant) or not _is_lent(statement):
        yield violation("not_an_approver", statement, f"{about} was decided by what the policy doesn't let decide")


def _principal(statement: Fact) -> Body:
    """What is recorded of who said it, beside his name."""
    body = statement.body
    if statement.type == "job_created":
        continues = body.get("continues")
        body = cast("Body", continues) if isinstance(continues, dict) else {}
        return _mapping(body.get("said_by"))
    return _mapping(body.get("principal"))


def _delegation(statement: Fact) -> Body:
    """In whose place it was said, until when that was lent, and when it was used."""
    return _mapping(_principal(statement).get("delegation"))


def _voice(statement: Fact, who: str) -> set[str]:
    """Who said it, and in whose place: whoever is either has said it."""
    lender = _delegation(statement).get("principal")
    return {who} if lender is None else {who, str(lender)}


def _is_lent(statement: Fact) -> bool:
    """Whether what was lent had not ended, and is something that can be lent."""
    lent = _delegation(statement)
    if not lent:
        return True
    try:
        at, until = (datetime.fromisoformat(str(lent.get(name))) for name in ("at", "until"))
        in_time = at < until
    except (ValueError, TypeError):
        return False
    return in_time and not breaks_glass(statement) and statement.body.get("decision") != "edit"


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


def _voted(validity: Validity, requested: Fact, decided: Fact, signers: Signers | None) -> Iterator[Violation]:
    """A yes where several must say it rests on as many votes, each by another and each his to give."""
    needed = requested.body.get("approvals")
    if not isinstance(needed, int) or isinstance(needed, bool) or decided.text("decision") != "approve":
        return
    if breaks_glass(decided):
        return
    cited = decided.body.get("votes")
    names = {str(name) for name in cast("list[object]", cited)} if isinstance(cited, list) else set[str]()
    votes = _votes(validity, requested, decided, signers)
    good = {vote.text("approver") for vote in votes if vote.text("approver") in names}
    if len(good) < needed:
        message = f"key {decided.key} was approved with {len(good)} votes of {needed} that are needed"
        yield violation("votes_missing", decided, message)


def _votes(validity: Validity, requested: Fact, decided: Fact, signers: Signers | None) -> Iterator[Fact]:
    """The votes between a request and its decision that its voters might give; of those that are signed, one a key."""
    heard: set[str] = set()
    keys: set[object] = set()
    for vote in validity.history.votes.get(decided.key, ()):
        if not requested.at < vote.at < decided.at or token_of(vote) != token_of(requested):
            continue
        found = (
            *_bound(requested, vote),
            *entitled(validity, requested.body, vote, vote.text("approver")),
            *_own_edit(validity, requested, vote),
            *_unsigned(validity, requested, vote, signers),
        )
        voice, key = _voice(vote, vote.text("approver")), _key(vote) if requested.body.get("signed") is True else None
        if found or voice & heard or key in keys:
            continue
        heard |= voice
        keys |= {key} - {None}
        yield vote


def _key(vote: Fact) -> str:
    return str(_mapping(vote.body.get("signature")).get("key"))


def _unsigned(validity: Validity, requested: Fact, said: Fact, signers: Signers | None) -> Iterator[Violation]:
    """Where the request must be signed: a signature of just this, by a key of who says it."""
    if requested.body.get("signed") is not True:
        return
    named = _mapping(said.body.get("signature"))
    signature, text = opened(named.get("armored")), _signed_text(validity, requested, said)
    is_lent = bool(_delegation(said))  # a signature does not say in whose place
    if signature is None or text is None or is_lent or not _is_of(signature, named, text):
        message = f"what was said on key {said.key} must be signed, and no signature of just that is there"
        yield violation("not_signed", said, message)
    elif signers is not None and not given_to(signers, signature.key, said.text("approver"), said.time):
        message = f"what was said on key {said.key} is signed by a key that is not given to whom it names, at that time"
        yield violation("foreign_signature", said, message)


def _is_of(signature: Opened, named: Body, text: bytes) -> bool:
    """Whether it is by the key that is named, and of this text."""
    return signature.fingerprint == named.get("key") and signature.holds(text)


def _signed_text(validity: Validity, requested: Fact, said: Fact) -> bytes | None:
    """What he had to sign, from what the log has; None where that has no such form."""
    try:
        return signed_text(_asked(validity, requested, said), _answer(validity, said))
    except ValueError:
        return None


def _asked(validity: Validity, requested: Fact, said: Fact) -> dict[str, Any]:
    created, asked, plans = validity.history.created, requested.body, validity.history.plans
    entry = plans.node(requested.node, plans.in_force(said.at))
    return {
        "installation": created.body.get("installation") if created is not None else None,
        "tenant": created.body.get("tenant") if created is not None else None,
        "job": requested.job,
        "step": requested.node,
        "request": request_id(requested.job, requested.node, requested.key, token_of(requested)),
        "tool": entry.get("tool") or entry.get("kind"),
        **{name: asked.get(name) for name in ("tool_version", "args_hash", "rule", "policy_hash")},
        "approvals": asked.get("approvals") or 1,
    }


def _answer(validity: Validity, said: Fact) -> dict[str, Any]:
    decision = said.body.get("decision", "approve")
    return {
        "approver": said.body.get("approver"),
        "decision": decision,
        "data_hash": validity.history.hash_of(said, "data") if decision == "edit" else None,
        "break_glass": breaks_glass(said),
    }


def _own_edit(validity: Validity, requested: Fact, decided: Fact) -> Iterator[Violation]:
    """By what the request says of its editor, and by who made these arguments."""
    history = validity.history
    if decided.body.get("decision", "approve") != "approve" or requested.body.get("self_approval") is True:
        return
    edits = history.edits.get(requested.node, ())
    made = [edit for edit in edits if edit.at < requested.at and _makes(validity, edit, requested)]
    editors = {requested.body.get("edited_by"), *(edit.body.get("approver") for edit in made[-1:])}
    if _voice(decided, decided.text("approver")) & (editors - {None, ""}):
        yield violation("own_edit", decided, f"who edited the call of key {decided.key} approved it")


def _makes(validity: Validity, edit: Fact, requested: Fact) -> bool:
    return validity.history.hash_of(edit, "data") == requested.text("args_hash") != ""


def _resolved(validity: Validity) -> Iterator[Violation]:
    """What became of a parked call, by a person's word: another try, or its end. Anybody may cancel what waits."""
    for key in validity.started_keys():
        for reopened in _reopened_by_hand(validity, key):
            says = validity.named(reopened.key, reopened.at)
            yield from entitled(validity, says, reopened, reopening_of(reopened).by)
        settled = validity.final(key)
        if settled is not None and settled.fact.text("via") == "human" and settled.fact.text("error") != "cancelled":
            says = validity.named(key, settled.fact.at)
            yield from entitled(validity, says, settled.fact, settled.fact.text("by"))
            yield from _agreed(validity, says, settled.fact)


def _agreed(validity: Validity, says: Body, settled: Fact) -> Iterator[Violation]:
    """What a person's word settles where several must say it: as many have said just this, and no other since."""
    verdict = "not_executed" if settled.outcome == PERMANENT else "happened"
    said = (verdict, settled.body.get("output_hash"))
    yield from _too_few(validity, says, settled, _words_on(validity, settled), said)


def _words_on(validity: Validity, settled: Fact) -> list[Fact]:
    """The votes on a call since it was parked; none where it is parked no more."""
    parked, starts = validity.parked(settled.key, settled.at), validity.starts_before(settled.key, settled.at)
    over = validity.handover(starts[-1]) if starts else None
    if parked is None or parked.invocation_id != settled.invocation_id or (over is not None and over.at < settled.at):
        return []
    about = (settled.key, settled.invocation_id)
    votes = (vote for vote in validity.history.resolution_votes if (vote.key, vote.invocation_id) == about)
    return _said_anew(vote for vote in votes if parked.at < vote.at < settled.at and not _accepts(vote))


def _said_anew(votes: Iterable[Fact]) -> list[Fact]:
    """Without those that their speaker said before, or had not read his last word for: repeats of others' making."""
    last: dict[str, Fact] = {}
    found: list[Fact] = []
    for vote in votes:
        before, as_of = last.get(vote.text("by")), vote.body.get("as_of")
        is_late = not isinstance(as_of, int) or isinstance(as_of, bool) or (before and as_of < before.offset)
        if not is_late and (before is None or _word(before) != _word(vote)):
            last[vote.text("by")] = vote
            found.append(vote)
    return found


def _word(vote: Fact) -> tuple[str, object]:
    return vote.text("verdict"), vote.body.get("output_hash")


def _too_few(
    validity: Validity, says: Body, settled: Fact, votes: Sequence[Fact], said: tuple[str, object]
) -> Iterator[Violation]:
    needed = several(says, settled)
    if needed is None:
        return
    cited = settled.body.get("votes")
    names = {str(name) for name in cast("list[object]", cited)} if isinstance(cited, list) else set[str]()
    heard: set[str] = set()
    agreeing = 0
    for vote in reversed(votes):
        voice = _voice(vote, vote.text("by"))
        if voice & heard or any(entitled(validity, says, vote, vote.text("by"))):
            continue
        heard |= voice
        agreeing += _word(vote) == said and vote.text("by") in names
    if agreeing < needed:
        about = f"the call of key {settled.key}" if settled.key else "what could not be confirmed"
        message = f"{about} was settled by the words of {agreeing} of {needed} that are needed"
        yield violation("votes_missing", settled, message)


def several(says: Body, settled: Fact) -> int | None:
    """How many must say what settles; None where one may, or says that it is an emergency."""
    needed = says.get("approvals")
    if not isinstance(needed, int) or isinstance(needed, bool) or breaks_glass(settled):
        return None
    return needed if needed > 1 else None


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
                words = _acceptances(validity, waiting, fact)
                yield from entitled(validity, waiting.body, fact, fact.text("by"))
                yield from _too_few(validity, waiting.body, fact, words, ("accepted", None))
            waiting = None


def _acceptances(validity: Validity, waiting: Fact, end: Fact) -> list[Fact]:
    key = waiting.body.get("correlation_key")
    votes = (vote for vote in validity.history.resolution_votes if waiting.at < vote.at < end.at)
    return [vote for vote in votes if _accepts(vote) and vote.body.get("correlation_key") == key]


def _accepts(vote: Fact) -> bool:
    return vote.text("verdict") == "accepted"


def _reopened_by_hand(validity: Validity, key: str) -> Iterator[Fact]:
    """The words by which a person had a key's call tried again."""
    for start in validity.valid[key]:
        end = validity.handover(start)
        if end is not None and end.by_hand and validity.settlement(key, end.at) is None:
            yield validity.history.facts[end.at]


def reopening_of(reopened: Fact) -> Reopening:
    """His name and evidence are the first of what the record has as evidence."""
    named = reopened.body.get("evidence")
    parts = cast("list[object]", named) if isinstance(named, list) else []
    first: Body = cast("Mapping[str, Any]", parts[0]) if parts and isinstance(parts[0], dict) else {}
    who = first.get("by")
    return Reopening(reopened, who if isinstance(who, str) else "", first.get("evidence"))
