"""The proof of one call of a sealed job, by itself: what was disclosed of it, and no more (docs/evidence.md).

It has the end of the try that succeeded, and its start where that says something which is asked for, each with its path
to the sealed tree. A record is shown whole or not at all, since its leaf is over all of it. Arguments stand in neither:
they are shown beside, all of them, since the start has one hash over them; what is hidden there can be opened alone.

Whoever holds all records could pick some that count for nothing: so a verifier signs it, which has judged all of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from aetheris.proofs import bundle
from aetheris.proofs.amendments import amends
from aetheris.proofs.canonical import hash_or_empty, json_hash
from aetheris.proofs.evidence import BadEvidence, Judged, LogCheck, check_exportable, dumps
from aetheris.proofs.execution import LoadBlob, UnreadableResult
from aetheris.proofs.history import SUCCESSES
from aetheris.proofs.openings import commitments_in, fits, is_hidden
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import Fact, RawRecord, body_of
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import (
    BadRecordProof,
    SealedLeaf,
    SealedTree,
    base64_of,
    bytes_in,
    open_leaf,
    open_seal,
    read_proof,
)
from aetheris.proofs.seals import pae
from aetheris.proofs.trust import NEVER, TrustedKey
from aetheris.proofs.witnesses import LogPolicy
from aetheris.proofs.words import is_proved

FORMAT = "aetheris-call-proof"
PAYLOAD_TYPE = "application/vnd.aetheris.call-proof+json"
STARTED, FINISHED = "tool_invocation_started", "tool_invocation_finished"
EXTERNAL_ID, ALL_ARGS, ARG = "external_id", "args", "args."
"""What is always shown; all arguments; what stands before the name of one that is called as something else is."""
MAX_NAMES = 100
_OF_START = {"tool": "tool_name", "version": "tool_version"}
_OF_END = ("result", "error", "evidence", "by", "principal", "usage")
_ALONG = frozenset(
    {
        *("job_id", "node_id", "idempotency_key", "invocation_id", "caused_by", "certificate", "sig"),
        *("revision", "token", "attempt_id", "external_key", "kind", "tool_name", "tool_version", "args_hash"),
        *("content_key", "occurrence", "rule", "after", "worker_id", "incarnation", "outcome", "via"),
        *("result_ref", "output_hash", "external_id", "uncalled", "votes", "word"),
    }
)
"""Fields of the two records that are no payload: they come along where a record is shown."""


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call, by what the external system calls it, and what of it is to be disclosed; `step`: its node."""

    external_id: str
    disclose: tuple[str, ...] = ()
    step: str | None = None


@dataclass(frozen=True, slots=True)
class _Try:
    """The one that succeeded."""

    start: Fact
    end: Fact


def make(
    records: Sequence[RawRecord],
    judged: Judged,
    inclusion: str,
    asked: AskedCall,
    *,
    sign: bundle.Sign,
    load: LoadBlob | None = None,
) -> bytes:
    """The proof of a call of a job whose seal holds; `inclusion`: that the log of seals has the seal.

    Raises:
        BadRecordProof: there is no such call, or what is asked for can't be disclosed without what was not.
        BadEvidence: the job breaks a rule, or is not sealed.
    """
    check_exportable(judged.report)
    one, seal = _found(judged, asked), records[judged.report.seal.at]
    args = _arguments(one.start, judged, load)
    named = _Named(asked.disclose, args)
    named.check(one)
    tree = SealedTree(records, seal)
    call = {
        "records": [tree.leaf(fact.at, hash_only=False) for fact in named.shown(one)],
        **({"args": args} if named.args else {}),
        "seal": base64_of(seal.value),
        "inclusion": inclusion,
    }
    payload = dumps(call)
    return _file(base64_of(payload), [sign(pae(PAYLOAD_TYPE, payload))], [])


def is_one(data: bytes) -> bool:
    """Whether a file says that it is the proof of a call."""
    try:
        read_proof(data, FORMAT)
    except BadRecordProof:
        return False
    return True


def hidden_among(proof: bytes, disclose: Iterable[str]) -> list[str]:
    """The c of each hidden value in what was to be disclosed; of a proof that one has just been given.

    Raises:
        BadRecordProof: no such proof.
    """
    call = _call(read_proof(proof, FORMAT))
    given, entries = call.get("args"), call.get("records")
    args = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    try:
        end = body_of(bytes_in(entries[-1]["value"])) if isinstance(entries, list) else None
    except (LookupError, TypeError):
        end = None
    found: dict[str, None] = {}
    for name in disclose:
        part = (end or {}).get(name) if name in _OF_END else args if name == ALL_ARGS else args.get(_plain(name))
        found |= dict.fromkeys(commitments_in(part))
    return list(found)


def with_openings(proof: bytes, openings: Sequence[Mapping[str, Any]]) -> bytes:
    """The proof with these openings beside: {c, salt, value} of each.

    Raises:
        BadRecordProof: no such proof.
    """
    parsed = read_proof(proof, FORMAT)
    shown = [{name: one.get(name) for name in ("c", "salt", "value")} for one in openings]
    return _file(parsed["payload"], parsed["signatures"], shown)


def check(
    data: bytes, keys: Sequence[TrustedKey], now: datetime = NEVER, policy: LogPolicy | None = None
) -> dict[str, Any]:
    """What a proof proves, by these keys; its seal must be in the log of seals, where a policy is given by that.

    A key that has retired at `now` vouches for no proof, and no checkpoint.

    Raises:
        BadRecordProof: it can't be read, or does not hold.
    """
    parsed = read_proof(data, FORMAT)
    call = _signed(parsed, keys, now)
    line, inclusion = bytes_in(call.get("seal")), call.get("inclusion")
    seal = open_seal(line, keys)
    start, end = _leaves(call, seal)
    for rule, message in LogCheck(keys, now, policy).refusals(line, inclusion if isinstance(inclusion, str) else ""):
        raise BadRecordProof(rule, message)
    _check_pair(start, end)
    began, ended = (start.says if start is not None else None) or {}, end.says or {}
    args = call.get("args")
    if args is not None and not (isinstance(args, dict) and _args_hash(args) == began.get("args_hash")):
        raise BadRecordProof("args_differ", "the arguments are not those that the call's start has the hash of")
    hidden = {*commitments_in(args), *commitments_in(ended)}
    opened = dict(_opened(parsed.get("openings"), hidden))
    shown = {name: value for name, value in ended.items() if name in _OF_END and value is not None}
    return {
        "ok": True,
        "job_id": seal["job_id"],
        "tenant": seal["tenant"],
        "step": ended.get("node_id"),
        **{name: began.get(field) for name, field in _OF_START.items() if began},
        **({"args": _with_opened(args, opened)} if args is not None else {}),
        "outcome": ended.get("outcome"),
        "via": ended.get("via"),
        EXTERNAL_ID: ended.get(EXTERNAL_ID),
        "output_hash": ended.get("output_hash"),
        **{name: _with_opened(value, opened) for name, value in shown.items()},
        "not_shown": [*([] if began else [STARTED]), *([] if args is not None else ["args"])],
        "hidden_values": len(hidden),
        "opened_values": len(opened),
        "records": [one.index for one in (start, end) if one is not None],
        "event_count": covers(seal),
        "event_tree_root_hash": seal.get("tree"),
        "sealed_at": str(seal.get("sealed_at")),
        "key_id": str(seal.get("key_id")),
        "amendment": amends(seal) is not None,
        "violations": [],
        "trusted": [key.key_id for key in keys],
    }


def _file(payload: str, signatures: object, openings: object) -> bytes:
    body = {"format": FORMAT, "version": 1, "payload": payload, "signatures": signatures, "openings": openings}
    return json.dumps(body, indent=1).encode() + b"\n"


def _signed(parsed: Mapping[str, Any], keys: Sequence[TrustedKey], now: datetime) -> Mapping[str, Any]:
    signatures = parsed.get("signatures")
    if not isinstance(signatures, list):
        raise BadRecordProof("bad_proof", "it has no list of signatures")
    message = pae(PAYLOAD_TYPE, bytes_in(parsed.get("payload")))
    try:
        bundle.check_signature(cast("list[Any]", signatures), message, keys, now)
    except BadEvidence as error:
        raise BadRecordProof(error.rule, error.message) from None
    return _call(parsed)


def _call(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    call = body_of(bytes_in(parsed.get("payload")))
    if call is None:
        raise BadRecordProof("bad_proof", "what it says can't be read")
    return call


class _Named:
    """What is to be disclosed, and what must be with it."""

    def __init__(self, disclose: Sequence[str], args: Mapping[str, Any]) -> None:
        if len(disclose) > MAX_NAMES:
            raise BadRecordProof("no_such_field", f"more than {MAX_NAMES} fields")
        self.args: set[str] = set()
        self.of_end = {name for name in disclose if name in _OF_END}
        self.shows_start = False
        for name in disclose:
            if name == ALL_ARGS:
                self.args |= {*args}
                self.shows_start = True
            elif name in _OF_START:
                self.shows_start = True
            elif name != EXTERNAL_ID and name not in _OF_END:
                plain = _plain(name)
                if plain not in args:
                    raise BadRecordProof("no_such_field", f"the call has no {name}")
                self.args.add(plain)
                self.shows_start = True
        self._beside = sorted(name for name in {*args} - self.args if self.args and not is_hidden(args[name]))

    def shown(self, one: _Try) -> list[Fact]:
        """The records that must be shown."""
        return [one.start, one.end] if self.shows_start else [one.end]

    def check(self, one: _Try) -> None:
        """Raises BadRecordProof: a record that must be shown has what is not to be disclosed."""
        wrong: list[str] = []
        if self._beside:
            wrong.append(
                f"the arguments have one hash, so with {', '.join(sorted(self.args))}: {', '.join(self._beside)}"
            )
        for fact in self.shown(one):
            beside = sorted(_payload(fact.body) - (self.of_end if fact is one.end else set()))
            if beside:
                wrong.append(f"{fact.type} is shown whole or not at all, so with it: {', '.join(beside)}")
        if wrong:
            raise BadRecordProof("not_alone", "; ".join(wrong) + ". Disclose these, too, or nothing of them")


def _found(judged: Judged, asked: AskedCall) -> _Try:
    validity, history = judged.validity, judged.history
    found: list[_Try] = []
    for start in history.starts:
        if not validity.is_valid(start) or asked.step not in (None, start.node):
            continue
        ends = [fact for fact in history.finishes.get((start.key, start.invocation_id), ()) if fact.at > start.at]
        end = next((fact for fact in ends if fact.outcome in SUCCESSES), None)
        if end is not None and end.text(EXTERNAL_ID) == asked.external_id != "":
            found.append(_Try(start, end))
    if not found:
        raise BadRecordProof("unknown_call", "no call of the job that succeeded has that external id")
    if len({one.start.node for one in found}) > 1:
        steps = ", ".join(sorted({one.start.node for one in found}))
        raise BadRecordProof("several_calls", f"that external id is of the steps {steps}: say which")
    return found[0]


def _arguments(start: Fact, judged: Judged, load: LoadBlob | None) -> Mapping[str, Any]:
    try:
        call = RecomputedCalls(judged.validity, load).call_of(start)
    except UnreadableResult as error:
        raise BadRecordProof(error.violation.rule, "a large result that its arguments are made of is missing") from None
    if call is None or call.args_hash != start.text("args_hash"):
        raise BadRecordProof("args_differ", "its arguments can't be told from the job's records")
    return call.args


def _leaves(parsed: Mapping[str, Any], seal: Mapping[str, Any]) -> tuple[SealedLeaf | None, SealedLeaf]:
    """The call's start, where it is shown, and its end."""
    given = parsed.get("records")
    entries = cast("list[object]", given) if isinstance(given, list) else []
    if not 1 <= len(entries) <= 2 or not all(isinstance(one, dict) for one in entries):
        raise BadRecordProof("bad_proof", "it has not the records of a call")
    *before, end = (open_leaf(cast("dict[str, Any]", one), seal) for one in entries)
    start = before[0] if before else None
    kinds = [one.headers.get("ce_type") for one in (*before, end)]
    wanted = [f"io.aetheris.{kind}.v1".encode() for kind in (STARTED, FINISHED)]
    if kinds != wanted[-len(kinds) :] or (start is not None and start.index >= end.index):
        raise BadRecordProof("bad_proof", "its records are not a call's start, and an end behind it")
    return start, end


def _check_pair(start: SealedLeaf | None, end: SealedLeaf) -> None:
    """They are of one try, which has succeeded; where it is said to say so itself, by its word."""
    ended = end.says
    if ended is None:
        raise BadRecordProof("bad_proof", "the call's end is not shown, or can't be read")
    if ended.get("outcome") not in SUCCESSES or not is_proved(FINISHED, ended):
        raise BadRecordProof("unproven_report", "its end is no success, or lacks the try's own word")
    if ended.get("result") is not None and not ended.get("output_hash") == hash_or_empty(ended["result"]) != "":
        raise BadRecordProof("output_hash_mismatch", "output_hash is not the result's")
    began = ended if start is None else start.says or {}
    if any(began.get(name) != ended.get(name) for name in ("node_id", "idempotency_key", "invocation_id")):
        raise BadRecordProof("other_call", "its start and its end are of two calls, or two tries")


def _opened(given: object, hidden: set[str]) -> Iterator[tuple[str, Any]]:
    """c → the value that was hidden so."""
    if not isinstance(given, list):
        raise BadRecordProof("bad_proof", "its openings are no list")
    for one in cast("list[object]", given):
        opening = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        c = opening.get("c")
        if not isinstance(c, str) or c not in hidden or not fits(opening):
            raise BadRecordProof("opening_differs", "an opening in it is not of what the call hides")
        yield c, opening["value"]


def _with_opened(part: Any, opened: Mapping[str, Any]) -> Any:
    if is_hidden(part):
        c = part["$hidden"]["c"]
        return opened.get(c, part)
    if isinstance(part, dict):
        return {name: _with_opened(inner, opened) for name, inner in cast("dict[str, Any]", part).items()}
    if isinstance(part, list):
        return [_with_opened(inner, opened) for inner in cast("list[Any]", part)]
    return part


def _payload(body: Mapping[str, Any]) -> set[str]:
    """Its fields that say more than what comes along; a field that nobody knows may say anything."""
    return {
        name
        for name, value in body.items()
        if name not in _ALONG and value not in (None, (), [], {}) and not is_hidden(value)
    }


def _plain(name: str) -> str:
    """An argument's own name."""
    return name.removeprefix(ARG)


def _args_hash(args: Any) -> str:
    """None at all are no bytes."""
    try:
        return json_hash(args) if args else _NO_ARGS
    except ValueError:
        return "none"


_NO_ARGS = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of nothing."""
