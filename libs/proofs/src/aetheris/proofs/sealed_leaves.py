"""Single records against the seal that covers them: each with its path to the sealed tree (docs/evidence.md)."""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.proofs import seals
from aetheris.proofs.chain import VERSION, leaf_of, record_leaf
from aetheris.proofs.merkle import Tree, root_of_path
from aetheris.proofs.records import COVERED, RawRecord, body_of
from aetheris.proofs.sealed import covers
from aetheris.proofs.trust import SEAL, TrustedKey, keyring

MAX_BYTES = 16 * 1024 * 1024
"""Of a proof."""
_LONGEST_PATH = 64
_HASH = re.compile(r"[0-9a-f]{64}")


class BadRecordProof(Exception):
    """A proof of a record that proves nothing; `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


class SealedTree:
    """The tree over the records that a seal covers."""

    def __init__(self, records: Sequence[RawRecord], seal: RawRecord) -> None:
        self._count = covers(body_of(seal.value) or {})
        self._records, self._tree = records[: self._count], Tree()
        for one in self._records:
            self._tree.append(record_leaf(one))

    def leaf(self, index: int, *, hash_only: bool) -> dict[str, Any]:
        """What proves a record: {index, path, headers, value or value_sha256}.

        Raises:
            BadRecordProof: the seal covers no such record, or the record is void.
        """
        if not 0 <= index < self._count == len(self._records):
            raise BadRecordProof("not_sealed", "the seal covers no such record")
        record = self._records[index]
        if record.repeated:
            raise BadRecordProof("repeated_header", "it says nothing: a header that names it comes more than once")
        value = hashlib.sha256(record.value).hexdigest() if hash_only else base64_of(record.value)
        return {
            "index": index,
            "path": [one.hex() for one in self._tree.inclusion(index, self._count)],
            "headers": {name: base64_of(record.named[name]) for name in COVERED if name in record.named},
            ("value_sha256" if hash_only else "value"): value,
        }


def read_proof(data: bytes, kind: str) -> dict[str, Any]:
    """A proof of that format, not judged yet.

    Raises:
        BadRecordProof.
    """
    parsed = body_of(data) if len(data) <= MAX_BYTES else None
    version = None if parsed is None or parsed.get("format") != kind else parsed.get("version")
    if parsed is None or type(version) is not int or version != 1:
        raise BadRecordProof("bad_proof", f"no {kind}")
    return dict(parsed)


def open_seal(line: bytes, keys: Sequence[TrustedKey]) -> dict[str, Any]:
    """What a seal says that one of the keys signed, in its time.

    Raises:
        BadRecordProof.
    """
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


@dataclass(frozen=True, slots=True)
class SealedLeaf:
    """A record that a seal covers; `value` is None where it is proved by its hash alone."""

    index: int
    headers: dict[str, bytes]
    value: bytes | None
    value_hash: bytes

    @property
    def says(self) -> Mapping[str, Any] | None:
        """Its payload; None where it is not shown, or can't be read."""
        return None if self.value is None else body_of(self.value)


def open_leaf(parsed: Mapping[str, Any], seal: Mapping[str, Any]) -> SealedLeaf:
    """A record, as `SealedTree.leaf` proves it, held against the seal.

    Raises:
        BadRecordProof: it is not in the sealed tree there, or another job's.
    """
    headers, value, value_hash = _record(parsed)
    named, path = parsed.get("index"), path_in(parsed.get("path"))
    index = named if type(named) is int else -1
    root = root_of_path(leaf_of(headers, value_hash), index, covers(seal), path)
    if root is None or root.hex() != seal.get("tree"):
        raise BadRecordProof("not_sealed", "the sealed tree has another record there")
    found = SealedLeaf(index, headers, value, value_hash)
    if found.says is not None and found.says.get("job_id") != seal["job_id"]:
        raise BadRecordProof("other_job", "the record is another job's than its seal")
    return found


def _record(parsed: Mapping[str, Any]) -> tuple[dict[str, bytes], bytes | None, bytes]:
    """Its headers, its value where that is there, and its value's hash."""
    given = parsed.get("headers")
    if not isinstance(given, dict) or not set(cast("dict[str, Any]", given)) <= set(COVERED):
        raise BadRecordProof("bad_proof", "its headers are not those that a leaf covers")
    headers = {name: bytes_in(value) for name, value in cast("dict[str, Any]", given).items()}
    if ("value" in parsed) == ("value_sha256" in parsed):
        raise BadRecordProof("bad_proof", "it has a value or its hash, not both")
    if "value" in parsed:
        value = bytes_in(parsed["value"])
        return headers, value, hashlib.sha256(value).digest()
    return headers, None, hash_in(parsed["value_sha256"])


def path_in(path: object) -> list[bytes]:
    """A path to a root, of hashes in hex.

    Raises:
        BadRecordProof.
    """
    if not isinstance(path, list) or len(cast("list[Any]", path)) > _LONGEST_PATH:
        raise BadRecordProof("bad_proof", "its path is no list of hashes")
    return [hash_in(one) for one in cast("list[Any]", path)]


def hash_in(text: object) -> bytes:
    """A hash in hex.

    Raises:
        BadRecordProof.
    """
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise BadRecordProof("bad_proof", "a hash in it is none")
    return bytes.fromhex(text)


def base64_of(data: bytes) -> str:
    """As text."""
    return base64.b64encode(data).decode()


def bytes_in(text: object) -> bytes:
    """Of base64.

    Raises:
        BadRecordProof.
    """
    try:
        return base64.b64decode(text if isinstance(text, str) else "!", validate=True)
    except (binascii.Error, ValueError):
        raise BadRecordProof("bad_proof", "a part of it is no base64") from None
