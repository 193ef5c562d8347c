"""Whose commands and lines of tables are: those count that their writer has signed (docs/adr/0009-signed-records.md).

Each has its certificate with it, so nothing is remembered: a service that restarts, has a new key or is one of several
says by itself whose it is. What a message is about it says itself, under its signature: it counts for nothing else.
"""

from collections.abc import Callable, Collection

from aetheris.protocol.base.ed25519 import verify
from aetheris.protocol.base.signing import SignedPlace, is_signed, read_signed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import MESSAGES, SIGNED_MESSAGES, Party
from aetheris.protocol.fold.provenance import is_certified_under, last_certificate
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations

IsTheirs = Callable[[str, str, bytes, bytes], bool]
"""Whether a message of a topic and a type, by its key and value, is of who may write such."""

_REVOCABLE = frozenset({Topic.JOBS_COMMANDS, Topic.TOOLS_REGISTRY, Topic.WORKERS, Topic.VERIFICATIONS})


class SignedMessages:
    """Judges messages; `roots`: key ids of the roots whose services are believed. Where there are none, all are.

    What a key of `revocations` has signed counts no more, whenever it did; but for freezes, their barriers and
    activations of policies, which would end by that.
    """

    def __init__(self, roots: Collection[str] = (), revocations: Revocations = NONE_REVOKED) -> None:
        self._roots = roots
        self._revocations = revocations

    def counts(self, topic: str, name: str, key: bytes | None, value: bytes) -> bool:
        """Whether a message of a type, under a record's key, is of who may write such."""
        if not self._roots or (topic, name) not in SIGNED_MESSAGES:
            return True
        return key is not None and self._is_by(MESSAGES[topic, name].writer, topic, name, key, value)

    def other_root(self, topic: str, name: str, value: bytes) -> str | None:
        """The root that a message names, where it is none that is believed; anybody can have one, and name it."""
        found = read_signed(value)
        certificate = last_certificate(found[0]) if found is not None and (topic, name) in SIGNED_MESSAGES else None
        if certificate is None or certificate.service != MESSAGES[topic, name].writer:
            return None
        return certificate.installation if certificate.installation not in self._roots else None

    def _is_by(self, writer: Party, topic: str, name: str, key: bytes, value: bytes) -> bool:
        found = read_signed(value)
        if found is None:
            return False
        payload, signature = found
        certificate = last_certificate(payload)
        if certificate is None or certificate.service != writer or certificate.installation not in self._roots:
            return False
        if topic in _REVOCABLE and self._revocations.revokes(certificate.installation, certificate.key_id):
            return False
        place = message_place(certificate.installation, topic, name, key.decode(errors="replace"))
        return is_certified_under(certificate, certificate.installation) and is_signed(
            place, payload, signature, certificate.public_key, verify
        )


def message_place(installation: str, topic: str, name: str, key: str) -> SignedPlace:
    """Where a message counts. It names no creation: a command may be older than that, and a job's id is used once."""
    return SignedPlace(installation, topic, name, key)
