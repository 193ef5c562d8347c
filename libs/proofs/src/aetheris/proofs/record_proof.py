"""The proof of one record of a sealed job, without any other: its leaf, a path, and the seal (docs/evidence.md)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aetheris.proofs import bundle
from aetheris.proofs.amendments import amends
from aetheris.proofs.claims import log_entry
from aetheris.proofs.notes import BadNote, open_inclusion
from aetheris.proofs.records import RawRecord, body_of, event_type
from aetheris.proofs.sealed import covers
from aetheris.proofs.sealed_leaves import (
    BadRecordProof,
    SealedTree,
    base64_of,
    bytes_in,
    open_leaf,
    open_seal,
    read_proof,
)
from aetheris.proofs.sealed_prefix import sealed_prefix
from aetheris.proofs.trust import NEVER, TrustedKey

FORMAT = "aetheris-record-proof"


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
    body = {
        "format": FORMAT,
        "version": 1,
        **SealedTree(records, seal).leaf(index, hash_only=hash_only),
        "seal": base64_of(seal.value),
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
    parsed = read_proof(data, FORMAT)
    line, inclusion = bytes_in(parsed.get("seal")), parsed.get("inclusion")
    seal = open_seal(line, keys)
    leaf = open_leaf(parsed, seal)
    if inclusion:
        _check_logged(inclusion, line, keys, now)
    return ProvedRecord(
        job_id=seal["job_id"],
        tenant=seal["tenant"],
        index=leaf.index,
        event_count=covers(seal),
        headers=leaf.headers,
        value=leaf.value,
        value_hash=leaf.value_hash.hex(),
        sealed_at=str(seal.get("sealed_at")),
        key_id=str(seal.get("key_id")),
        is_amendment=amends(seal) is not None,
        is_logged=bool(inclusion),
    )


def _check_logged(inclusion: object, line: bytes, keys: Sequence[TrustedKey], now: datetime) -> None:
    if not isinstance(inclusion, str):
        raise BadRecordProof("bad_proof", "its inclusion is no text")
    try:
        open_inclusion(inclusion, log_entry(line), keys, now)
    except BadNote as error:
        raise BadRecordProof(error.rule, f"log of seals: {error.message}") from None
