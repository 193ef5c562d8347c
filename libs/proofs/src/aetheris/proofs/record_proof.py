"""The proof of one record of a sealed job, without any other: its leaf, a path, and the seal (docs/evidence.md)."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from aetheris.proofs import bundle, seals
from aetheris.proofs.amendments import amends
from aetheris.proofs.chain import VERSION, leaf_of, record_leaf
from aetheris.proofs.claims import log_entry
from aetheris.proofs.merkle import Tree, root_of_path
from aetheris.proofs.notes import BadNote, open_inclusion
from aetheris.proofs.records import COVERED, RawRecord, body_of, event_type
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_prefix import sealed_prefix
from aetheris.proofs.trust import NEVER, SEAL, TrustedKey, keyring

FORMAT = "aetheris-record-proof"
MAX_BYTES = 16 * 1024 * 1024
"""Of a proof."""
_LONGEST_PATH = 64


class BadRecordProof(Exception):
    """A proof of a record that proves nothing; `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


@dataclass(frozen=True, slots=True)
class ProvedRecord:
    """What a proof says of a record, held against a seal by a trusted key."""

    job_id: str
    tenant: str
    index: int
    event_count: int
    headers: dict[str, bytes]
    value: bytes | None
    """None where the proof has its hash alone."""
    value_hash: str
    sealed_at: str
    key_id: str
    is_amendment: bool
    """Whether the seal amends one before it: the record may have come behind that."""
    is_logged: bool
    """Whether the proof also shows that the seal is in the log of seals."""

    def to_json(self) -> dict[str, Any]:
        """As a command prints it; `says` is the payload, or null."""
        texts = {name.removeprefix("ce_"): value.decode(errors="replace") for name, value in self.headers.items()}
        texts["type"] = event_type(self.headers.get("ce_type", b"")).decode(errors="replace")
        return {
            "ok": True,
            "job_id": self.job_id,
            "tenant": self.tenant,
            "index": self.index,
            "event_count": self.event_count,
            **texts,
            "value_sha256": self.value_hash,
            "says": None if self.value is None else body_of(self.value),
            "sealed_at": self.sealed_at,
            "key_id": self.key_id,
            "amendment": self.is_amendment,
            "logged": self.is_logged,
        }


def make(
    records: Sequence[RawRecord], index: int, seal: RawRecord, inclusion: str = "", *, hash_only: bool = False
) -> bytes:
    """The proof of one of the records that a seal covers; `inclusion`: that the log of seals has the seal.

    Raises:
        BadRecordProof: the seal covers no such record, or the record is void.
    """
    count = covers(body_of(seal.value) or {})
    if not 0 <= index < count <= len(records):
        raise BadRecordProof("not_sealed", "the seal covers no such record")
    record, tree = records[index], Tree()
    if record.repeated:
        raise BadRecordProof("repeated_header", "it says nothing: a header that it is known by comes more than once")
    for one in records[:count]:
        tree.append(record_leaf(one))
    value = {"value_sha256": hashlib.sha256(record.value).hexdigest()} if hash_only else {"value": _text(record.value)}
    body = {
        "format": FORMAT,
        "version": 1,
        "index": index,
        "path": [one.hex() for one in tree.inclusion(index, count)],
        "headers": {name: _text(record.named[name]) for name in COVERED if name in record.named},
        **value,
        "seal": _text(seal.value),
        "inclusion": inclusion,
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def of_event(data: bytes, event_id: str, *, hash_only: bool = False) -> bytes:
    """The proof of one record of the job in a bundle, by the bundle's own keys.

    Raises:
        BadEvidence: the bundle can't be read.
        BadRecordProof: it has no such event, or none that its seal covers.
    """
    found = bundle.contents(data)
    prefix = sealed_prefix(list(found.records), found.keys)
    named = [at for at, one in enumerate(prefix.records[:-1]) if one.header("ce_id") == event_id.encode()]
    if len(named) != 1:
        raise BadRecordProof("unknown_event", f"{len(named)} of the sealed records have that event id")
    return make(prefix.records[:-1], named[0], prefix.records[-1], found.inclusion, hash_only=hash_only)


def check(data: bytes, keys: Sequence[TrustedKey], now: datetime = NEVER) -> ProvedRecord:
    """What a proof proves, by these keys; a key that has retired at `now` vouches for no checkpoint.

    Raises:
        BadRecordProof: it can't be read, or does not hold.
    """
    parsed = body_of(data) if len(data) <= MAX_BYTES else None
    if parsed is None or (parsed.get("format"), parsed.get("version")) != (FORMAT, 1):
        raise BadRecordProof("bad_proof", "not a proof of a record")
    line, inclusion = _bytes(parsed.get("seal")), parsed.get("inclusion")
    seal = _seal(line, keys)
    headers, value, value_hash = _record(cast("dict[str, Any]", parsed))
    index, path, count = parsed.get("index"), _path(parsed.get("path")), covers(seal)
    if type(index) is not int or root_of_path(leaf_of(headers, value_hash), index, count, path) != _root(seal):
        raise BadRecordProof("not_sealed", "the sealed tree has another record there")
    says = body_of(value) if value is not None else None
    if says is not None and says.get("job_id") != seal["job_id"]:
        raise BadRecordProof("other_job", "the record is another job's than its seal")
    if inclusion:
        _check_logged(inclusion, line, keys, now)
    return ProvedRecord(
        job_id=seal["job_id"],
        tenant=seal["tenant"],
        index=index,
        event_count=count,
        headers=headers,
        value=value,
        value_hash=value_hash.hex(),
        sealed_at=str(seal.get("sealed_at")),
        key_id=str(seal.get("key_id")),
        is_amendment=amends(seal) is not None,
        is_logged=bool(inclusion),
    )


def _seal(line: bytes, keys: Sequence[TrustedKey]) -> dict[str, Any]:
    seal = dict(body_of(line) or {})
    key = keyring(keys, SEAL).get(str(seal.get("key_id")))
    if key is None:
        raise BadRecordProof("seal_unknown_key", "the seal's key_id is none of the keys given")
    if not seals.verify(seal, key.public_key):
        raise BadRecordProof("seal_signature", "the seal's signature is not its key's over its payload")
    if (refusal := key.refusal(str(seal.get("sealed_at")))) is not None:
        raise BadRecordProof(*refusal)
    if type(seal.get("chain")) is not int or seal["chain"] != VERSION:
        raise BadRecordProof("seal_chain", f"it is over no chain of version {VERSION}")
    if not all(isinstance(seal.get(name), str) for name in ("job_id", "tenant")):
        raise BadRecordProof("bad_proof", "its seal names no job")
    return seal


def _root(seal: dict[str, Any]) -> bytes | None:
    try:
        return bytes.fromhex(seal["tree"])
    except (KeyError, TypeError, ValueError):
        return None


def _record(parsed: dict[str, Any]) -> tuple[dict[str, bytes], bytes | None, bytes]:
    """Its headers, its value where that is there, and its value's hash."""
    given = parsed.get("headers")
    if not isinstance(given, dict) or not set(cast("dict[str, Any]", given)) <= set(COVERED):
        raise BadRecordProof("bad_proof", "its headers are not those that a leaf covers")
    headers = {name: _bytes(value) for name, value in cast("dict[str, Any]", given).items()}
    if ("value" in parsed) == ("value_sha256" in parsed):
        raise BadRecordProof("bad_proof", "it has a value or its hash, not both")
    if "value" in parsed:
        value = _bytes(parsed["value"])
        return headers, value, hashlib.sha256(value).digest()
    return headers, None, _hash(parsed["value_sha256"])


def _check_logged(inclusion: object, line: bytes, keys: Sequence[TrustedKey], now: datetime) -> None:
    if not isinstance(inclusion, str):
        raise BadRecordProof("bad_proof", "its inclusion is no text")
    try:
        open_inclusion(inclusion, log_entry(line), keys, now)
    except BadNote as error:
        raise BadRecordProof(error.rule, f"log of seals: {error.message}") from None


def _path(path: object) -> list[bytes]:
    if not isinstance(path, list) or len(cast("list[Any]", path)) > _LONGEST_PATH:
        raise BadRecordProof("bad_proof", "its path is no list of hashes")
    return [_hash(one) for one in cast("list[Any]", path)]


def _hash(text: object) -> bytes:
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != 32:
        raise BadRecordProof("bad_proof", "a hash in it is none")
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "!", validate=True)
    except (binascii.Error, ValueError):
        raise BadRecordProof("bad_proof", "a part of it is no base64") from None
