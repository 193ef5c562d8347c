"""Whose commands, lines of tables and pieces of checkpoints are: those count that their writer has signed (ADR 9).

Each has its certificate with it, so nothing is remembered: a service that restarts, has a new key or is one of several
says by itself whose it is. What a message is about it says itself, under its signature: it counts for nothing else.
"""

import hashlib
from collections.abc import Callable, Collection

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.signing import SignedPlace, is_signed, read_signed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import CHECKPOINTS, MESSAGES, SIGNED_MESSAGES, Party
from aetheris.protocol.fold.provenance import is_certified_under, last_certificate
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations

IsTheirs = Callable[[str, str, bytes, bytes], bool]
"""Whether a message of a topic and a type, by its key and value, is of who may write such."""

PIECE = "checkpoint"
"""The type of a piece of a checkpoint."""
PIECE_SIGNATURE = "signature"
"""The header of a piece that has `piece_said`, with its certificate, signed as a message is."""

_REVOCABLE = frozenset(
    {Topic.JOBS_COMMANDS, Topic.TOOLS_REGISTRY, Topic.WORKERS, Topic.VERIFICATIONS, *map(Topic, CHECKPOINTS)}
)


class SignedMessages:
    """Judges messages; `roots`: key ids of the roots whose services are believed. Where there are none, all are.

    What a key of `revocations` has signed counts no more, whenever it did; of barriers what lies behind that. Orders
    and their answers count on: they would end by it.
    """

    def __init__(self, roots: Collection[str] = (), revocations: Revocations = NONE_REVOKED) -> None:
        self._roots = roots
        self._revocations = revocations

    @property
    def believe_all(self) -> bool:
        """Whether nothing needs a signature."""
        return not self._roots

    def counts(
        self, topic: str, name: str, key: bytes | None, value: bytes, place: tuple[int, int] | None = None
    ) -> bool:
        """Whether a message of a type, under a record's key, is of who may write such.

        `place`: partition and offset, of what lies in jobs.events.
        """
        if not self._roots or (topic, name) not in SIGNED_MESSAGES:
            return True
        if key is None:
            return False
        payload = self._said_by(MESSAGES[topic, name].writer, topic, name, key, value)
        return payload is not None and (place is None or not self._is_behind(payload, *place))

    def other_root(self, topic: str, name: str, value: bytes) -> str | None:
        """The root that a message names, where it is none that is believed; anybody can have one, and name it."""
        found = read_signed(value)
        certificate = last_certificate(found[0]) if found is not None and (topic, name) in SIGNED_MESSAGES else None
        if certificate is None or certificate.service != MESSAGES[topic, name].writer:
            return None
        return certificate.installation if certificate.installation not in self._roots else None

    def piece_counts(self, record: Record) -> bool:
        """Whether a piece of a checkpoint is of the service whose topic it is, as it wrote it there (ADR 7)."""
        if not self._roots:
            return True
        value, writer = record.header(PIECE_SIGNATURE), CHECKPOINTS.get(record.topic)
        if value is None or writer is None:
            return False
        payload = self._said_by(writer, record.topic, PIECE, record.key or b"", value)
        return payload is not None and payload.startswith(piece_said(record.partition, record.value)[:-1])

    def _is_behind(self, payload: bytes, partition: int, offset: int) -> bool:
        """Whether what is signed lies behind its key's revocation."""
        by = last_certificate(payload)
        return by is not None and self._revocations.refuses(by.installation, by.key_id, partition, offset)

    def _said_by(self, writer: Party, topic: str, name: str, key: bytes, value: bytes) -> bytes | None:
        """The payload that a service of one of the roots has signed for its place; None: none has."""
        found = read_signed(value)
        if found is None:
            return None
        payload, signature = found
        certificate = last_certificate(payload)
        if certificate is None or certificate.service != writer or certificate.installation not in self._roots:
            return None
        if topic in _REVOCABLE and self._revocations.revokes(certificate.installation, certificate.key_id):
            return None
        place = message_place(certificate.installation, topic, name, key.decode(errors="replace"))
        is_theirs = is_certified_under(certificate, certificate.installation) and is_signed(
            place, payload, signature, certificate.public_key, verify
        )
        return payload if is_theirs else None


def piece_said(partition: int, value: bytes) -> bytes:
    """What is signed of a piece of a checkpoint beside its topic and key: where it lies, and which bytes it has."""
    return b'{"partition":%d,"sha256":"%b"}' % (partition, hashlib.sha256(value).hexdigest().encode())


def message_place(installation: str, topic: str, name: str, key: str) -> SignedPlace:
    """Where a message counts. It names no creation: a command may be older than that, and a job's id is used once."""
    return SignedPlace(installation, topic, name, key)
