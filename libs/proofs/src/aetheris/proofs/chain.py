"""The event chain: one hash over every record of a job, in log order (docs/verification.md)."""

import hashlib
from binascii import b2a_base64
from collections.abc import Iterable

from aetheris.proofs.records import RawRecord, event_type


class ChainHead:
    """The chain's head: root_i = SHA-256(root_{i−1} + "\\n" + event_id + " " + type + " " + base64(payload)).

    root_0 is empty; roots enter as their 32 raw bytes, ids and payloads as the bytes stored in the log.
    """

    __slots__ = ("count", "root")

    def __init__(self, root: bytes = b"", count: int = 0) -> None:
        self.root = root
        self.count = count

    def update(self, record: RawRecord) -> bytes:
        """Append a record; the new root, 32 bytes."""
        name = event_type(record.header("ce_type"))
        link = b"%b\n%b %b %b" % (self.root, record.header("ce_id"), name, b2a_base64(record.value, newline=False))
        self.root = hashlib.sha256(link).digest()
        self.count += 1
        return self.root

    def hexdigest(self) -> str:
        """The root in hex; empty while nothing is chained."""
        return self.root.hex()


def event_chain_root(records: Iterable[RawRecord]) -> str:
    """The root over whole records, in hex."""
    head = ChainHead()
    for record in records:
        head.update(record)
    return head.hexdigest()
