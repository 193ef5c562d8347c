"""The evidence bundle: a signed envelope (DSSE) in a zip; and the script that checks one (docs/evidence.md)."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, cast

from cryptography.exceptions import InvalidSignature

from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.bundle_zip import pack, unpack
from aetheris.proofs.evidence import (
    BadEvidence,
    Evidence,
    Judged,
    LogCheck,
    dumps,
    judge_statement,
    read_statement,
    statement,
)
from aetheris.proofs.redacted_evidence import PREDICATE_TYPE as REDACTED_TYPE
from aetheris.proofs.redacted_evidence import (
    RedactedEvidence,
    RedactedJob,
    judge_redacted,
    read_redacted,
    redacted_statement,
)
from aetheris.proofs.redacted_records import Redaction
from aetheris.proofs.seals import pae
from aetheris.proofs.timestamps import TrustedAuthorities
from aetheris.proofs.trust import NEVER, SEAL, TrustedKey, keyring
from aetheris.proofs.witnesses import LogPolicy

PAYLOAD_TYPE = "application/vnd.in-toto+json"
SCRIPT = "verify.py"
MAX_BESIDE = 64 * 1024
"""Bytes of an envelope beside its payload."""
MAX_VALUES = 4_000_000
"""Values of a statement, in its lists and objects."""
MAX_DEPTH = 256
"""Levels of a statement: those of a record, and what is around it."""

_HEAD, _JOINT = b'{"payload":"', b'",'

Sign = Callable[[bytes], Mapping[str, str]]
"""Signs bytes: {keyid, sig}."""


def build(evidence: Evidence, judged: Sequence[Judged], sign: Sign) -> bytes:
    """The bundle of a finished job; the same evidence gives the same bytes. `judged`: of each job of its chain.

    Raises:
        BadEvidence: the history breaks a rule, is not sealed, or is too large.
    """
    return _packed(statement(evidence, judged), sign)


def build_redacted(evidence: Evidence, judged: Sequence[Judged], redaction: Redaction, sign: Sign) -> bytes:
    """The same without the records that are to be left out.

    Raises:
        BadEvidence: as `build`.
    """
    return _packed(redacted_statement(evidence, judged, redaction), sign)


def _packed(stated: dict[str, Any], sign: Sign) -> bytes:
    payload = dumps(stated)
    if not _is_bounded(payload):
        raise BadEvidence("too_large", f"a bundle has at most {MAX_VALUES} values; export the stream")
    return pack(envelope(payload, [sign(pae(PAYLOAD_TYPE, payload))]))


def envelope(payload: bytes, signatures: Sequence[Mapping[str, str]]) -> bytes:
    """An envelope in the one form that is read: what its signatures are over can be found without parsing it."""
    tail = {"payloadType": PAYLOAD_TYPE, "signatures": [dict(signature) for signature in signatures]}
    return _HEAD + base64.b64encode(payload) + _JOINT + dumps(tail)[1:]


def judge(
    data: bytes,
    keys: Sequence[TrustedKey] | None = None,
    signers: Sequence[TrustedSigner] | None = None,
    now: datetime = NEVER,
    policy: LogPolicy | None = None,
    *,
    whole: bool = True,
    authorities: TrustedAuthorities | None = None,
) -> dict[str, Any]:
    """The report on a bundle: by these keys, or by those that it brings itself; what approvers signed, by `signers`.

    By a policy, where one is given, whether its seal is in a log that counts, and enough witnesses have seen it there;
    where authorities are, whether one of them has put a time stamp on that.

    A key that has retired at `now` vouches for no envelope and no checkpoint.

    Raises:
        BadEvidence: there is nothing in it to report on; or records are left out of it, and it is to be whole.
    """
    parsed, evidence = _opened(data, keys, now, whole=whole)
    trusted = evidence.keys if keys is None else keys
    logged = LogCheck(trusted, now, policy, authorities)
    if isinstance(evidence, RedactedEvidence):
        report = judge_redacted(parsed, evidence, logged, signers)
    else:
        report = judge_statement(parsed, evidence, logged, signers)
    return {**report, "trusted": [key.key_id for key in trusted]}


def contents(data: bytes, keys: Sequence[TrustedKey] | None = None, now: datetime = NEVER) -> Evidence:
    """What a bundle has that one of these keys signed, or one of those that it brings; its history is not judged.

    Raises:
        BadEvidence: it can't be read, or its signature does not hold.
    """
    found = _opened(data, keys, now, whole=True)[1]
    assert isinstance(found, Evidence)  # noqa: S101  asked for whole
    return found


def shown_job(data: bytes, keys: Sequence[TrustedKey] | None = None, now: datetime = NEVER) -> Evidence | RedactedJob:
    """The job that a bundle is of, as far as it is shown: also of a redacted one; as `contents`.

    Raises:
        BadEvidence.
    """
    found = _opened(data, keys, now, whole=False)[1]
    return found.jobs[0] if isinstance(found, RedactedEvidence) else found


def script() -> bytes:
    """The script that checks a bundle; it is in none, since one that is could be anybody's."""
    return (files("aetheris.proofs") / "standalone" / SCRIPT).read_bytes()


def script_sha256() -> str:
    """Its hash, as it is published in docs/evidence.md."""
    return hashlib.sha256(script()).hexdigest()


def _opened(
    data: bytes, keys: Sequence[TrustedKey] | None, now: datetime, *, whole: bool
) -> tuple[Any, Evidence | RedactedEvidence]:
    """The statement, parsed, and what it has: only behind the signature, where the keys are known before."""
    payload, signatures = _unsealed(unpack(data))
    if keys is not None:
        check_signature(signatures, pae(PAYLOAD_TYPE, payload), keys, now)
    if not _is_bounded(payload):
        raise BadEvidence("bad_statement", f"more than {MAX_VALUES} values")
    parsed = _mapping(_json(payload, "bad_statement"), "bad_statement")
    if _is_deep(parsed):
        raise BadEvidence("bad_statement", "nested too deep")
    is_redacted = parsed.get("predicateType") == REDACTED_TYPE
    evidence = read_redacted(parsed) if is_redacted else read_statement(parsed)
    if keys is None:
        check_signature(signatures, pae(PAYLOAD_TYPE, payload), evidence.keys, now)
    if is_redacted and whole:
        raise BadEvidence("redacted", "records are left out of it")
    return parsed, evidence


def _unsealed(data: bytes) -> tuple[bytes, list[Any]]:
    """(payload, signatures) of an envelope, whoever signed it. Only what stands beside the payload is parsed."""
    end = data.find(_JOINT[:1], len(_HEAD))  # base64 has none; one byte is found at a glance
    if not data.startswith(_HEAD) or not data.startswith(_JOINT, end) or len(data) - end > MAX_BESIDE:
        raise BadEvidence("bad_envelope", "not in the form that a bundle's envelope has")
    tail = _mapping(_json(b"{" + data[end + len(_JOINT) :], "bad_envelope"), "bad_envelope")
    signatures: Any = tail.get("signatures")
    if set(tail) != {"payloadType", "signatures"} or tail["payloadType"] != PAYLOAD_TYPE:
        raise BadEvidence("bad_envelope", f"its payloadType is not {PAYLOAD_TYPE}, or there is something beside")
    if not isinstance(signatures, list):
        raise BadEvidence("bad_envelope", "has no list of signatures")
    return _unbase64(data[len(_HEAD) : end]), cast("list[Any]", signatures)


def check_signature(signatures: Sequence[Any], message: bytes, keys: Sequence[TrustedKey], now: datetime) -> None:
    """One signature by a trusted key is enough; others are ignored, but none by a trusted key may be wrong.

    Raises:
        BadEvidence.
    """
    known = keyring(keys, SEAL)
    verified, ended = False, set[str]()
    for one in signatures:
        signature = _mapping(one, "bad_envelope")
        key = known.get(str(signature.get("keyid")))
        if key is None:
            continue
        try:
            key.public_key.verify(_unbase64(signature.get("sig")), message)
        except InvalidSignature:
            raise BadEvidence("envelope_signature", "a signature of the envelope is not its key's") from None
        why = key.ended(now)
        verified, ended = verified or not why, ended | {why}
    if not verified and "revoked" in ended:
        raise BadEvidence("envelope_revoked_key", "signed by a revoked key: export it again")
    if not verified and "retired" in ended:
        raise BadEvidence("envelope_retired_key", "signed by a key that has retired: export it again")
    if not verified:
        raise BadEvidence("envelope_unknown_key", "signed by none of the keys given")


def _is_bounded(payload: bytes) -> bool:
    """Whether it can be parsed in memory that its size foretells: each value has one of these before it."""
    return sum(payload.count(mark) for mark in (b",", b"[", b"{")) <= MAX_VALUES


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        within = (one.values() if type(one) is dict else one for one in level)
        level = [inner for each in within for inner in each if type(inner) is dict or type(inner) is list]
    return bool(level)


def _json(data: bytes, rule: str) -> Any:
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadEvidence(rule, "not JSON, or with a key that comes twice") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _mapping(value: Any, rule: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadEvidence(rule, "not a JSON object")
    return cast("dict[str, Any]", value)


def _unbase64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadEvidence("bad_envelope", "a part of the envelope is no base64") from None
