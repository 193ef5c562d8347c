"""The proof of one call of a sealed job, by itself: what was disclosed of it, and no more (docs/evidence.md).

It has the parts that are disclosed, each with its salt, the digests of the others, the path from these to the root over
calls that the seal states, and the proof that the seal is in the log of seals. No record of the job is in it. What the
seal states of calls its verifier computed when it had judged all of the job; whoever has all of it computes it again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from aetheris.proofs.amendments import amends
from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.disclosures import (
    ARG,
    ARGS,
    CALL,
    OF_CALL,
    OF_END,
    OF_START,
    OUTPUT_HASH,
    DisclosableCall,
    Disclosure,
    disclosable_calls,
    leaf_of,
)
from aetheris.proofs.evidence import Judged, LogCheck, check_exportable
from aetheris.proofs.execution import LoadBlob, UnreadableResult, read_result
from aetheris.proofs.merkle import Tree, root_of_path
from aetheris.proofs.openings import commitments_in, fits, is_hidden
from aetheris.proofs.recomputed_calls import RecomputedCalls
from aetheris.proofs.records import RawRecord, body_of
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import (
    MAX_BYTES,
    BadRecordProof,
    base64_of,
    bytes_in,
    hash_in,
    open_seal,
    path_in,
    read_proof,
)
from aetheris.proofs.trust import NEVER, TrustedKey
from aetheris.proofs.witnesses import LogPolicy

FORMAT = "aetheris-call-proof"
EXTERNAL_ID, RESULT = "external_id", "result"
MAX_NAMES = 100


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call, by what the external system calls it, and what of it is to be disclosed; `step`: its node."""

    external_id: str
    disclose: tuple[str, ...] = ()
    step: str | None = None


def make(
    records: Sequence[RawRecord],
    judged: Judged,
    inclusion: str,
    asked: AskedCall,
    *,
    load: LoadBlob | None = None,
) -> bytes:
    """The proof of a call of a job whose seal holds; `inclusion`: that the log of seals has the seal.

    Raises:
        BadRecordProof: there is no such call, or it has not what is asked for.
        BadEvidence: the job breaks a rule, or is not sealed.
    """
    check_exportable(judged.report)
    seal = records[judged.report.seal.at]
    recomputed = RecomputedCalls(judged.validity, load)
    calls = disclosable_calls(judged.validity, recomputed, judged.report.event_count)
    if calls is None:
        raise BadRecordProof("missing_blob", "a large result that a call's arguments are made of is missing")
    index = _index(calls, asked)
    if (body_of(seal.value) or {}).get("calls") is None:
        raise BadRecordProof("not_sealed", "the job's seal states nothing by which a call could be shown alone")
    one, tree = calls[index], Tree()
    for call in calls:
        tree.append(call.leaf())
    names = {CALL, *(part for name in asked.disclose for part in _parts_of(name, one))}
    parts = list(one.disclosures())
    if not (one.has_secret or {part.name for _, part in parts} <= names):
        rule = "nobody signed the record of its end: what is not shown could be found by trying. Disclose all of it"
        raise BadRecordProof("guessable_salts", rule)
    data = _file(
        {
            "seal": base64_of(seal.value),
            "inclusion": inclusion,
            "index": index,
            "count": len(calls),
            "path": [step.hex() for step in tree.inclusion(index, len(calls))],
            "shown": [list(part) for _, part in parts if part.name in names],
            "hidden": sorted(digest.hex() for digest, part in parts if part.name not in names),
            **({RESULT: _result(one, load)} if RESULT in asked.disclose else {}),
            "openings": [],
        }
    )
    if not is_one(data):
        raise BadRecordProof("too_large", f"what is to be disclosed has more than {MAX_BYTES} bytes, or is too deep")
    return data


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
    parsed = read_proof(proof, FORMAT)
    shown = {part.name: part.value for part in _shown(parsed)} | {RESULT: parsed.get(RESULT)}
    wanted = {*disclose}
    found: dict[str, None] = {}
    for name, value in shown.items():
        if name in wanted or name.removeprefix(ARG) in wanted or (name.startswith(ARG) and ARGS in wanted):
            found |= dict.fromkeys(commitments_in(value))
    return list(found)


def with_openings(proof: bytes, openings: Sequence[Mapping[str, Any]]) -> bytes:
    """The proof with these openings beside: {c, salt, value} of each.

    Raises:
        BadRecordProof: no such proof.
    """
    parsed = read_proof(proof, FORMAT)
    return _file(parsed | {"openings": [{name: one.get(name) for name in ("c", "salt", "value")} for one in openings]})


def check(
    data: bytes, keys: Sequence[TrustedKey], now: datetime = NEVER, policy: LogPolicy | None = None
) -> dict[str, Any]:
    """What a proof proves, by these keys; its seal must be in the log of seals, where a policy is given by that.

    A key that has retired at `now` vouches for no checkpoint.

    Raises:
        BadRecordProof: it can't be read, or does not hold.
    """
    parsed = read_proof(data, FORMAT)
    line, inclusion = bytes_in(parsed.get("seal")), parsed.get("inclusion")
    seal = open_seal(line, keys)
    for rule, message in LogCheck(keys, now, policy).refusals(line, inclusion if isinstance(inclusion, str) else ""):
        raise BadRecordProof(rule, message)
    parts = _shown(parsed)
    _check_sealed(parsed, parts, seal)
    shown = {part.name: part.value for part in parts}
    args = {name.removeprefix(ARG): value for name, value in shown.items() if name.startswith(ARG)}
    if ARGS in shown and shown[ARGS] != sorted(args):
        raise BadRecordProof("args_differ", "it says that all arguments are shown, and lacks some")
    if RESULT in parsed and not hash_or_empty(parsed[RESULT]) == shown.get(OUTPUT_HASH) != "":
        raise BadRecordProof("output_hash_mismatch", "the result is not that which the call's end has the hash of")
    more = {name: shown[name] for name in OF_END if name in shown}
    more |= {RESULT: parsed[RESULT]} if RESULT in parsed else {}
    hidden = {*commitments_in(args), *commitments_in(more)}
    opened = dict(_opened(parsed.get("openings"), hidden))
    return {
        "ok": True,
        "job_id": seal["job_id"],
        "tenant": seal["tenant"],
        **{name: shown[CALL].get(name) for name in OF_CALL},
        **{name: shown[name] for name in (*OF_START, OUTPUT_HASH) if name in shown},
        **({"args": _with_opened(args, opened)} if args or ARGS in shown else {}),
        "all_args": ARGS in shown,
        **{name: _with_opened(value, opened) for name, value in more.items()},
        "not_shown": len(cast("list[Any]", parsed["hidden"])),
        "hidden_values": len(hidden),
        "opened_values": len(opened),
        "event_count": covers(seal),
        "event_tree_root_hash": seal.get("tree"),
        "sealed_at": str(seal.get("sealed_at")),
        "key_id": str(seal.get("key_id")),
        "amendment": amends(seal) is not None,
        "violations": [],
        "trusted": [key.key_id for key in keys],
    }


def _file(said: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, "version": 1, **said}, indent=1).encode() + b"\n"


def _index(calls: Sequence[DisclosableCall], asked: AskedCall) -> int:
    found = [
        at
        for at, one in enumerate(calls)
        if one.end.text(EXTERNAL_ID) == asked.external_id and asked.step in (None, one.start.node)
    ]
    if not found:
        raise BadRecordProof("unknown_call", "no call of the job that succeeded has that external id")
    if len({calls[at].start.node for at in found}) > 1:
        steps = ", ".join(sorted({calls[at].start.node for at in found}))
        raise BadRecordProof("several_calls", f"that external id is of the steps {steps}: say which")
    return found[0]


def _parts_of(name: str, one: DisclosableCall) -> list[str]:
    """The parts that are shown where a name is asked for; of the call itself it is all that always is.

    Raises:
        BadRecordProof: the call has no such part.
    """
    if name in (EXTERNAL_ID, "outcome"):
        return []
    if name == RESULT:
        return [OUTPUT_HASH]
    if name == ARGS:
        return [ARGS, *(part for part in one.parts if part.startswith(ARG))]
    found = name if name in one.parts and name != CALL else ARG + name
    if found not in one.parts:
        if name in OF_END:
            return []
        raise BadRecordProof("no_such_field", f"the call has no {name}")
    return [found]


def _result(one: DisclosableCall, load: LoadBlob | None) -> Any:
    try:
        return read_result(one.end, load)
    except UnreadableResult as error:
        raise BadRecordProof(error.violation.rule, "its large result can't be read") from None


def _shown(parsed: Mapping[str, Any]) -> list[Disclosure]:
    given = parsed.get("shown")
    entries = cast("list[object]", given) if isinstance(given, list) else []
    found = [part for entry in entries if (part := Disclosure.of(entry)) is not None]
    names = {part.name for part in found}
    if not len(entries) == len(found) == len(names) or CALL not in names:
        raise BadRecordProof("bad_proof", "a part in it is none, or comes twice, or the call itself is not shown")
    return found


def _check_sealed(parsed: Mapping[str, Any], parts: Sequence[Disclosure], seal: Mapping[str, Any]) -> None:
    """Shown and hidden parts are all of a call that the seal states."""
    given, index, count = (parsed.get(name) for name in ("hidden", "index", "count"))
    if not isinstance(given, list) or type(index) is not int or type(count) is not int:
        raise BadRecordProof("bad_proof", "it lacks the digests of what is not shown, or the call's place")
    try:
        digests = [*(part.digest() for part in parts), *(hash_in(one) for one in cast("list[Any]", given))]
    except ValueError:
        raise BadRecordProof("bad_proof", "a part in it has no canonical form") from None
    root = root_of_path(leaf_of(digests), index, count, path_in(parsed.get("path")))
    if root is None or root.hex() != seal.get("calls"):
        raise BadRecordProof("not_sealed", "the seal has another call there, or it has other parts")
    said = next(part.value for part in parts if part.name == CALL)
    if not isinstance(said, dict):
        raise BadRecordProof("bad_proof", "it says nothing of the call itself")


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
