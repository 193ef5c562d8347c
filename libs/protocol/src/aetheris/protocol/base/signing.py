"""What a service signs, to the byte: records, certificates, revocations (docs/adr/0009-signed-records.md).

Nothing here signs or verifies: keys are the runtime's. `Verify` is given to whoever judges.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import cast

from aetheris.protocol.base.canonical import canonical

RECORD = "application/vnd.aetheris.record"
BATCH = "application/vnd.aetheris.records"
CERTIFICATE = "application/vnd.aetheris.certificate+json"
REVOCATION = "application/vnd.aetheris.revocation+json"

MAX_PATH = 20
"""So many hashes lead from a record to the root of its batch: a million records."""

_HASH_BYTES = 32
_SIGNATURE = b',"sig":'
_PLAIN = re.compile(r"[A-Za-z0-9._:-]*")
"""Texts whose canonical form is their own: nearly every place has no others."""
_FORM = re.compile(
    rb'\{(?:"index":(0|[1-9][0-9]{0,6}),)?"key":"([0-9a-f]{64})",'
    rb'(?:"path":"([A-Za-z0-9+/]+=*)","size":([1-9][0-9]{0,6}),)?"value":"([A-Za-z0-9+/]{86}==)"\}\}'
)
_CARRIED = re.compile(rb',"certificate":\{[^{}]*\}\}\Z')

Verify = Callable[[bytes, bytes, bytes], bool]
"""(raw Ed25519 public key, signature, message) → whether the key signed the message."""


@dataclass(slots=True)
class SignedPlace:
    """Where a record counts, and nowhere else; never changed, as `Record` isn't.

    `installation` is its root's key id; `key` is the record's (job_id).
    `born`: hex SHA-256 of the value of the job_created that stands; None for that record itself.
    `sequence`: in a table, a number that only grows, in place of `born`.
    """

    installation: str
    topic: str
    type: str
    key: str
    born: str | None = None
    sequence: int | None = None


@dataclass(slots=True)
class RecordSignature:
    """One signature over a batch, and a record's way to it: `index` of `size` leaves, `path` from the leaf up.

    Never changed, as `Record` isn't.
    """

    key_id: str
    value: bytes
    index: int = 0
    size: int = 1
    path: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A root's word that a public key (raw) is a service's; the times (RFC 3339) are for who signs, and for audits."""

    service: str
    public_key: bytes
    not_before: str
    not_after: str
    root: bytes
    signature: bytes = b""

    @property
    def key_id(self) -> str:
        """The id of the key that it is for."""
        return key_id_of(self.public_key)

    @property
    def installation(self) -> str:
        """The id of the root's key."""
        return key_id_of(self.root)

    def message(self) -> bytes:
        """What the root signs."""
        return pae(CERTIFICATE, canonical(self._body()))

    def to_json(self) -> dict[str, str]:
        """{service, public_key, not_before, not_after, root, signature}."""
        return {**self._body(), "signature": _text(self.signature)}

    def _body(self) -> dict[str, str]:
        return {
            "service": self.service,
            "public_key": _text(self.public_key),
            "not_before": self.not_before,
            "not_after": self.not_after,
            "root": _text(self.root),
        }


@dataclass(frozen=True, slots=True)
class Revocation:
    """A root's word that a key's signature counts no more behind it, in the jobs that carry it; `at` is RFC 3339."""

    key_id: str
    at: str
    reason: str
    root: bytes
    signature: bytes = b""

    @property
    def installation(self) -> str:
        """The id of the root's key."""
        return key_id_of(self.root)

    def message(self) -> bytes:
        """What the root signs."""
        named = {"installation": self.installation, "key_id": self.key_id, "at": self.at, "reason": self.reason}
        return pae(REVOCATION, canonical(named))

    def to_json(self) -> dict[str, str]:
        """{key_id, at, reason, root, signature}."""
        said = {"key_id": self.key_id, "at": self.at, "reason": self.reason}
        return {**said, "root": _text(self.root), "signature": _text(self.signature)}


@lru_cache(maxsize=1024)
def key_id_of(public_key: bytes) -> str:
    """hex SHA-256 of a raw public key, whole: jobs pin their root by it."""
    return hashlib.sha256(public_key).hexdigest()


def born_of(job_created: bytes) -> str:
    """hex SHA-256 of the value of a job_created."""
    return hashlib.sha256(job_created).hexdigest()


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding (DSSE v1, protocol)."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


def statement(place: SignedPlace, payload: bytes) -> bytes:
    """What is signed of a record: its place in one line of canonical JSON, then its payload's own bytes."""
    return pae(RECORD, _line(place) + b"\n" + payload)


def batch_message(root: bytes) -> bytes:
    """What is signed of a batch: the root over its records' statements."""
    return pae(BATCH, root)


def leaf(answer: bytes) -> bytes:
    """A statement as a leaf of its batch (RFC 9162 §2.1.1)."""
    return hashlib.sha256(b"\0" + answer).digest()


def batch(leaves: Sequence[bytes]) -> tuple[bytes, list[tuple[bytes, ...]]]:
    """(the root over leaf hashes, the path of each from its sibling up), as RFC 9162 §2.1 has them.

    Raises:
        ValueError: there is no leaf, or more than MAX_PATH hashes could lead from one to the root.
    """
    if not 0 < len(leaves) <= 1 << MAX_PATH:
        raise ValueError("a batch has from one to a million leaves")
    return _tree(leaves)


def root_of(answer: bytes, signature: RecordSignature) -> bytes | None:
    """The root that a statement's path leads to (RFC 9162 §2.1.3.2); None for a path of the wrong length."""
    if not 0 <= signature.index < signature.size:
        return None
    at, last, found = signature.index, signature.size - 1, leaf(answer)
    for step in signature.path:
        if last == 0:
            return None
        if at & 1 or at == last:
            found = _node(step, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = _node(found, step)
        at, last = at >> 1, last >> 1
    return found if last == 0 else None


def signed_value(payload: bytes, signature: RecordSignature) -> bytes:
    """The record's value: the payload, an object with a member at least, with `sig` as its last member."""
    key, value = signature.key_id.encode(), base64.b64encode(signature.value)
    if signature.size == 1:
        return b'%b,"sig":{"key":"%b","value":"%b"}}' % (payload[:-1], key, value)
    path = base64.b64encode(b"".join(signature.path))
    form = b'%b,"sig":{"index":%d,"key":"%b","path":"%b","size":%d,"value":"%b"}}'
    return form % (payload[:-1], signature.index, key, path, signature.size, value)


def read_signed(value: bytes) -> tuple[bytes, RecordSignature] | None:
    """(the payload's bytes, the signature); None where the bytes are not just what `signed_value` makes."""
    at = value.rfind(_SIGNATURE)
    form = _FORM.fullmatch(value, at + len(_SIGNATURE)) if at > 0 else None
    if form is None:
        return None
    index, key_id, path, size, signed = form.groups()
    answer, hashes = _decoded(signed), b"" if path is None else _decoded(path)
    if answer is None or hashes is None or (index is None) != (path is None):
        return None
    if len(hashes) % _HASH_BYTES or len(hashes) > MAX_PATH * _HASH_BYTES:
        return None
    way = tuple([hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)])
    signature = RecordSignature(key_id.decode(), answer, int(index or b"0"), int(size or b"1"), way)
    return value[:at] + b"}", signature


def ends_signed(value: bytes, at: int) -> bool:
    """Whether just a signature stands in a value from `at` on, as `signed_value` writes it."""
    return value.startswith(_SIGNATURE, at) and _FORM.fullmatch(value, at + len(_SIGNATURE)) is not None


def payload_said(value: bytes) -> bytes:
    """What a record says, without its signature and the certificate that it brings: the same in its repeats."""
    found = read_signed(value)
    return value if found is None else _CARRIED.sub(b"}", found[0])


def read_certificate(reported: object) -> Certificate | None:
    """A certificate as a record carries it; None where it is none. Whether its root signed it is for `is_certified`."""
    if not isinstance(reported, dict):
        return None
    named = cast("dict[str, object]", reported)
    service, not_before, not_after = (named.get(name) for name in ("service", "not_before", "not_after"))
    keys = [_bytes(named.get(name), size) for name, size in (("public_key", 32), ("root", 32), ("signature", 64))]
    if not (isinstance(service, str) and isinstance(not_before, str) and isinstance(not_after, str)) or None in keys:
        return None
    public_key, root, signature = cast("list[bytes]", keys)
    return Certificate(service, public_key, not_before, not_after, root, signature)


def is_certified(certificate: Certificate, installation: str, verify: Verify) -> bool:
    """Whether it is of this installation's root; no time is looked at."""
    if certificate.installation != installation:
        return False
    return verify(certificate.root, certificate.signature, certificate.message())


def read_revocation(reported: object) -> Revocation | None:
    """A revocation from its fields; None where it is none. Whether its root signed it is for `is_revocation`."""
    if not isinstance(reported, dict):
        return None
    named = cast("dict[str, object]", reported)
    key_id, at, reason = (named.get(name) for name in ("key_id", "at", "reason"))
    root, signature = _bytes(named.get("root"), 32), _bytes(named.get("signature"), 64)
    if not (isinstance(key_id, str) and isinstance(at, str) and isinstance(reason, str)):
        return None
    return None if root is None or signature is None else Revocation(key_id, at, reason, root, signature)


def is_revocation(revocation: Revocation, installation: str, verify: Verify) -> bool:
    """Whether this installation's root revokes the key; no time is looked at."""
    if revocation.installation != installation:
        return False
    try:
        message = revocation.message()
    except ValueError:  # what has no canonical form is signed by nobody
        return False
    return verify(revocation.root, revocation.signature, message)


def is_signed(
    place: SignedPlace, payload: bytes, signature: RecordSignature, public_key: bytes, verify: Verify
) -> bool:
    """Whether a key signed these bytes for this place."""
    if signature.key_id != key_id_of(public_key):
        return False
    root = root_of(statement(place, payload), signature)
    return root is not None and verify(public_key, signature.value, batch_message(root))


def _line(place: SignedPlace) -> bytes:
    born = "null" if place.born is None else f'"{place.born}"'
    sequence = "null" if place.sequence is None else place.sequence
    texts = f'"topic":"{place.topic}","type":"{place.type}"'
    line = f'{{"born":{born},"installation":"{place.installation}","key":"{place.key}","sequence":{sequence},{texts}}}'
    if _PLAIN.fullmatch(f"{place.born or ''}{place.installation}{place.key}{place.topic}{place.type}"):
        return line.encode()
    return canonical(asdict(place))


def _tree(leaves: Sequence[bytes]) -> tuple[bytes, list[tuple[bytes, ...]]]:
    level, paths = list(leaves), [list[bytes]() for _ in leaves]
    width = 1  # how many leaves are below each node of the level; below its last there may be fewer
    while len(level) > 1:
        # an odd one rises as it is until it has a sibling: so do the unequal subtrees of the definition
        for at in range(0, len(level) - 1, 2):
            left, right = level[at : at + 2]
            for path in paths[at * width : (at + 1) * width]:
                path.append(right)
            for path in paths[(at + 1) * width : (at + 2) * width]:
                path.append(left)
        rest = level[-1:] if len(level) % 2 else []
        level = [*(_node(left, right) for left, right in zip(level[::2], level[1::2], strict=False)), *rest]
        width *= 2
    return level[0], [tuple(path) for path in paths]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: bytes) -> bytes | None:
    """From base64 that is written as it must be."""
    try:
        data = binascii.a2b_base64(text)
    except binascii.Error:
        return None
    return data if binascii.b2a_base64(data, newline=False) == text else None


def _bytes(reported: object, size: int | None = None) -> bytes | None:
    """Base64 that is written as it must be, of that many bytes."""
    if not isinstance(reported, str):
        return None
    try:
        data = base64.b64decode(reported, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _text(data) == reported and size in (None, len(data)) else None
