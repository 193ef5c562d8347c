"""The evidence bundle: a signed envelope (DSSE) in a zip; and the script that checks one (docs/evidence.md)."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

from cryptography.exceptions import InvalidSignature

from aetheris.proofs.approver_signatures import TrustedSigner
from aetheris.proofs.bundle_zip import pack, unpack
from aetheris.proofs.evidence import (
    BadEvidence,
    Evidence,
    Judged,
    dumps,
    judge_statement,
    read_statement,
    statement,
)
from aetheris.proofs.seals import pae
from aetheris.proofs.trust import TrustedKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
SCRIPT = "verify.py"

Sign = Callable[[bytes], Mapping[str, str]]
"""Signs bytes: {keyid, sig}."""


def build(evidence: Evidence, judged: Sequence[Judged], sign: Sign) -> bytes:
    """The bundle of a finished job; the same evidence gives the same bytes. `judged`: of each job of its chain.

    Raises:
        BadEvidence: the history breaks a rule, is not sealed, or is too large.
    """
    payload = dumps(statement(evidence, judged))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [dict(sign(pae(PAYLOAD_TYPE, payload)))],
    }
    return pack(dumps(envelope))


def judge(
    data: bytes, keys: Sequence[TrustedKey] | None = None, signers: Sequence[TrustedSigner] | None = None
) -> dict[str, Any]:
    """The report on a bundle: by these keys, or by those that it brings itself; what approvers signed, by `signers`.

    Raises:
        BadEvidence: there is nothing in it to report on.
    """
    envelope = _mapping(_json(unpack(data), "bad_envelope"), "bad_envelope")
    payload = _payload(envelope)
    parsed = _json(payload, "bad_statement")
    evidence = read_statement(parsed)
    trusted = evidence.keys if keys is None else keys
    _check_signature(envelope, payload, trusted)
    return {**judge_statement(parsed, evidence, trusted, signers), "trusted": [key.key_id for key in trusted]}


def contents(data: bytes) -> Evidence:
    """What a bundle has, not judged: neither its signature nor its history.

    Raises:
        BadEvidence: it can't be read.
    """
    envelope = _mapping(_json(unpack(data), "bad_envelope"), "bad_envelope")
    return read_statement(_json(_payload(envelope), "bad_statement"))


def script() -> bytes:
    """The script that checks a bundle; it is in none, since one that is could be anybody's."""
    return (files("aetheris.proofs") / "standalone" / SCRIPT).read_bytes()


def script_sha256() -> str:
    """Its hash, as it is published in docs/evidence.md."""
    return hashlib.sha256(script()).hexdigest()


def _payload(envelope: Mapping[str, Any]) -> bytes:
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        raise BadEvidence("bad_envelope", f"its payloadType is not {PAYLOAD_TYPE}")
    return _unbase64(envelope.get("payload"))


def _check_signature(envelope: Mapping[str, Any], payload: bytes, keys: Sequence[TrustedKey]) -> None:
    """One signature by a trusted key is enough; others are ignored, but none by a trusted key may be wrong."""
    known = {key.key_id: key for key in keys}
    message = pae(PAYLOAD_TYPE, payload)
    verified = revoked = False
    signatures: Any = envelope.get("signatures")
    for one in cast("list[Any]", signatures) if isinstance(signatures, list) else []:
        signature = _mapping(one, "bad_envelope")
        key = known.get(str(signature.get("keyid")))
        if key is None:
            continue
        try:
            key.public_key.verify(_unbase64(signature.get("sig")), message)
        except InvalidSignature:
            raise BadEvidence("envelope_signature", "a signature of the envelope is not its key's") from None
        verified, revoked = verified or key.revoked_at is None, revoked or key.revoked_at is not None
    if not verified:
        rule = "envelope_revoked_key" if revoked else "envelope_unknown_key"
        raise BadEvidence(rule, f"signed by {'a revoked key' if revoked else 'none of the keys given'}")


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
