"""The tree over a job's records that its seal states: the chain in its version 2 (docs/verification.md)."""

import hashlib
from collections.abc import Iterable

from aetheris.protocol.base.records import KNOWN_BY, Record

_ABSENT, _REPEATED = b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"


def tree_over(records: Iterable[Record]) -> bytes:
    """The root (RFC 9162 §2.1.1) over the leaves of records in log order, 32 bytes."""
    level = [record_leaf(record) for record in records]
    if not level:
        return hashlib.sha256(b"").digest()
    while len(level) > 1:
        # an odd one rises as it is until it has a sibling: so do the unequal subtrees of the definition
        rest = level[-1:] if len(level) % 2 else []
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [*(hashlib.sha256(b"\1" + left + right).digest() for left, right in pairs), *rest]
    return level[0]


def record_leaf(record: Record) -> bytes:
    """SHA-256 of 00, each header that a record is known by, and the SHA-256 of its value, each with its length."""
    headers, repeated = dict(record.headers), record.repeated()
    said = [_REPEATED if name in repeated else _prefixed(headers.get(name)) for name in KNOWN_BY]
    return hashlib.sha256(b"\0" + b"".join(said) + _prefixed(hashlib.sha256(record.value).digest())).digest()


def _prefixed(data: bytes | None) -> bytes:
    return _ABSENT if data is None else len(data).to_bytes(4, "big") + data
