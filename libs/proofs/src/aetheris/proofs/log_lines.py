"""What the log of seals says beside seals: which submissions were answered, how open jobs stand, who was erased.

A line is a JSON object with its `kind`, signed as a seal is, under a payload type of its own. It names submissions and
jobs by salted hashes: whoever has a receipt, or knows a job, finds it, and nobody learns of another (docs/receipts.md).
A person is named by its pseudonym (docs/hidden-values.md).
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from cryptography.exceptions import InvalidSignature

from aetheris.proofs.canonical import canonical
from aetheris.proofs.records import body_of
from aetheris.proofs.seals import SigningKey, key_id, pae
from aetheris.proofs.trust import TrustedKey

ANSWERS, INTERIM, ERASED = "answered_submissions", "interim_seals", "subject_erased"
"""The kinds of lines, as their records' types name them."""

MOST = 500
"""Entries of a line."""

_PAYLOAD_TYPES = {
    ANSWERS: "application/vnd.aetheris.answered-submissions+json",
    INTERIM: "application/vnd.aetheris.interim-seals+json",
    ERASED: "application/vnd.aetheris.subject-erased+json",
}
_OF_A_RECEIPT = ("gateway", "partition", "number", "at", "salt")


def receipt_hash(job_id: str, tenant: str, request_hash: str, number: Mapping[str, Any]) -> str:
    """What a line calls a receipt by (hex); `number` is its `receipt`, whose salt lets nobody guess it."""
    named = {name: number[name] for name in _OF_A_RECEIPT}
    said = {**named, "job_id": job_id, "tenant": tenant, "request_hash": request_hash}
    return hashlib.sha256(canonical(said)).hexdigest()


def job_hash(salt: str, job_id: str) -> str:
    """What a line calls a job by (hex); `salt` is the line's."""
    return hashlib.sha256(f"{salt}\0{job_id}".encode()).hexdigest()


def answers_payload(
    *, partition: int, up_to: int, answers: Iterable[tuple[str, str]], at: str, salt: str, unjudged: Sequence[int] = ()
) -> dict[str, Any]:
    """A line, unsigned: (receipt hash, answer) of each; what of the partition lies below `up_to` is answered with it.

    But for what lies at the offsets of `unjudged`: its writer could not tell whether these are answers.
    `at` (RFC 3339) says which keys may sign it, `salt` (16 random bytes, hex) keeps its hash from being guessed.
    """
    said = [{"receipt": receipt, "answer": answer} for receipt, answer in answers]
    named = {"kind": ANSWERS, "partition": partition, "up_to": up_to, "answers": said, "at": at, "salt": salt}
    return {**named, "unjudged": list(unjudged)} if unjudged else named


def interim_payload(
    *, tenant: str, partition: int, jobs: Iterable[tuple[str, int, str]], at: str, salt: str
) -> dict[str, Any]:
    """A line, unsigned: of each open job its id, how many records it has, and the root of the tree over them (hex)."""
    said = [{"job": job_hash(salt, job_id), "event_count": count, "tree": tree} for job_id, count, tree in jobs]
    return {"kind": INTERIM, "tenant": tenant, "partition": partition, "jobs": said, "at": at, "salt": salt}


def erased_payload(*, pseudonym: str, erased_at: str, at: str, salt: str) -> dict[str, Any]:
    """A line, unsigned: when the key behind a pseudonym was destroyed (RFC 3339), as who did it says."""
    return {"kind": ERASED, "pseudonym": pseudonym, "erased_at": erased_at, "at": at, "salt": salt}


def sign_line(payload: Mapping[str, Any], private_key: SigningKey) -> dict[str, Any]:
    """A line with its key_id and its signature (base64)."""
    named = {**payload, "key_id": key_id(private_key.public_key())}
    signature = private_key.sign(pae(_PAYLOAD_TYPES[payload["kind"]], canonical(named)))
    return {**named, "signature": base64.b64encode(signature).decode()}


def line_kind(line: bytes) -> str | None:
    """The kind that a line says it is, whoever wrote it; None for any other, such as a seal."""
    if not line.startswith(b'{"kind":"'):  # whoever writes one writes it so: seals need not be parsed for it
        return None
    kind = (body_of(line) or {}).get("kind")
    return kind if isinstance(kind, str) and kind in _PAYLOAD_TYPES else None


def read_line(line: bytes, keys: Mapping[str, TrustedKey]) -> Mapping[str, Any] | None:
    """What a line says, if a trusted key signed it in its time; None for any other, which says nothing."""
    body = body_of(line) if line_kind(line) is not None else None
    if body is None:
        return None
    at, name, signature = (body.get(field) for field in ("at", "key_id", "signature"))
    key = keys.get(name) if isinstance(name, str) else None
    if key is None or not isinstance(at, str) or not isinstance(signature, str) or key.refusal(at) is not None:
        return None
    unsigned = {field: value for field, value in body.items() if field != "signature"}
    try:
        said = pae(_PAYLOAD_TYPES[str(body["kind"])], canonical(unsigned))
        key.public_key.verify(base64.b64decode(signature, validate=True), said)
    except (InvalidSignature, binascii.Error, ValueError):
        return None
    return body


def answers_of(line: Mapping[str, Any], receipt: str) -> list[str]:
    """What a line says of a receipt, by its hash; it may say nothing."""
    return [str(one.get("answer")) for one in entries_of(line, "answers") if one.get("receipt") == receipt]


def unjudged_in(line: Mapping[str, Any]) -> frozenset[int]:
    """The offsets below its `up_to` of which a line says that they could not be judged."""
    found = line.get("unjudged")
    return (
        frozenset(one for one in cast("list[object]", found) if type(one) is int)
        if isinstance(found, list)
        else frozenset()
    )


def interim_of(line: Mapping[str, Any], job_id: str) -> tuple[int, str] | None:
    """(how many records, the root of their tree) that a line says of a job; None where it says nothing."""
    tag = job_hash(str(line.get("salt")), job_id)
    for one in entries_of(line, "jobs"):
        count, tree = one.get("event_count"), one.get("tree")
        if one.get("job") == tag and type(count) is int and isinstance(tree, str):
            return count, tree
    return None


def erased_of(line: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(the pseudonym, when its key was destroyed, when that was logged) of a line; None where it says nothing."""
    said = tuple(line.get(name) for name in ("pseudonym", "erased_at", "at"))
    if line.get("kind") != ERASED or not all(isinstance(one, str) for one in said):
        return None
    return cast("tuple[str, str, str]", said)


def entries_of(line: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The objects in a list that a line has; nothing else of it."""
    found = line.get(name)
    if not isinstance(found, list):
        return ()
    return [cast("Mapping[str, Any]", one) for one in cast("list[object]", found) if isinstance(one, dict)]
