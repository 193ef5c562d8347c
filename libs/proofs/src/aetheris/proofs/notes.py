"""Checkpoints of the log of seals, and proofs that travel with one, as text (docs/evidence.md).

Formats: C2SP signed-note, tlog-checkpoint and tlog-proof; a proof of consistency is the body that tlog-witness posts.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aetheris.proofs.merkle import consistency_holds, inclusion_holds, leaf_hash
from aetheris.proofs.seals import SigningKey
from aetheris.proofs.trust import LOG, TrustedKey, keyring

PROOF_VERSION = "c2sp.org/tlog-proof@v1"
MAX_CHARS = 1 << 20
MAX_SIGNATURES = 64
SIGNATURE, COSIGNATURE = b"\x01", b"\x04"
"""What a key of a signed note signs: notes, or a log's checkpoints with a time."""
_KEPT = datetime.min.replace(tzinfo=UTC)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_ORIGIN = re.compile(r"[^\s+]{1,255}")


class BadNote(Exception):
    """A checkpoint or a proof that proves nothing; `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a log: `size` leaves under `root` (32 bytes); `note` is all of it, signatures too."""

    origin: str
    size: int
    root: bytes
    note: str


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """Where a leaf is, its path to the root, and the checkpoint that says the root; not judged yet."""

    index: int
    path: tuple[bytes, ...]
    checkpoint: str

    def dumps(self) -> str:
        """A tlog-proof."""
        lines = [PROOF_VERSION, f"index {self.index}", *map(_base64, self.path)]
        return "\n".join(lines) + "\n\n" + self.checkpoint


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """That the log only grew since it had `old` leaves, and the checkpoint up to which it says so; not judged yet."""

    old: int
    path: tuple[bytes, ...]
    checkpoint: str

    def dumps(self) -> str:
        """As tlog-witness posts it."""
        return "\n".join([f"old {self.old}", *map(_base64, self.path)]) + "\n\n" + self.checkpoint


def sign_checkpoint(origin: str, size: int, root: bytes, private_key: SigningKey) -> str:
    """A checkpoint, signed under its origin's name.

    Raises:
        ValueError: the origin has white space or a plus.
    """
    if not _ORIGIN.fullmatch(origin):
        raise ValueError("an origin is 1 to 255 characters, without white space and +")
    text = f"{origin}\n{size}\n{_base64(root)}\n"
    named = note_key_id(origin, private_key.public_key())
    return f"{text}\n— {origin} {_base64(named + private_key.sign(text.encode()))}\n"


def read_checkpoint(note: str) -> Checkpoint:
    """What a checkpoint says, whoever signed it: for one's own notes only.

    Raises:
        BadNote.
    """
    return _checkpoint(_signed(note)[0], note)


def open_checkpoint(note: str, keys: Iterable[TrustedKey], now: datetime | None = None) -> Checkpoint:
    """What a checkpoint says, if one of the keys signed it. A revoked key's word counts for nothing.

    Nor does a retired one's, at `now`; None for a checkpoint that one has kept oneself since then.

    Raises:
        BadNote.
    """
    text, signatures = _signed(note)
    checkpoint = _checkpoint(text, note)
    known = {note_key_id(checkpoint.origin, key.public_key): key for key in keyring(keys, LOG).values()}
    verified, ended = False, set[str]()
    for name, signature in signatures:
        key = known.get(signature[:4])
        if name != checkpoint.origin or key is None:
            continue
        if not _holds(key.public_key, signature[4:], text.encode()):
            raise BadNote("checkpoint_signature", "the checkpoint's signature is not its key's")
        why = key.ended(now if now is not None else _KEPT)
        verified, ended = verified or not why, ended | {why}
    if not verified and "revoked" in ended:
        raise BadNote("checkpoint_revoked_key", "signed by a revoked key")
    if not verified and "retired" in ended:
        raise BadNote("checkpoint_retired_key", "signed by a key that has retired: nothing says that it was before")
    if not verified:
        raise BadNote("checkpoint_unknown_key", "signed by none of the keys given")
    return checkpoint


def open_inclusion(
    proof: str, data: bytes, keys: Iterable[TrustedKey], now: datetime | None = None
) -> tuple[int, Checkpoint]:
    """The index of a leaf with these bytes, and the checkpoint that it is in; `now` as for `open_checkpoint`.

    Raises:
        BadNote.
    """
    parsed = parse_inclusion(proof)
    checkpoint = open_checkpoint(parsed.checkpoint, keys, now)
    if not inclusion_holds(leaf_hash(data), parsed.index, checkpoint.size, parsed.path, checkpoint.root):
        raise BadNote("not_included", f"leaf {parsed.index} of the checkpoint's tree is another")
    return parsed.index, checkpoint


def open_consistency(
    proof: str, old: Checkpoint, keys: Iterable[TrustedKey], now: datetime | None = None
) -> Checkpoint:
    """The newer checkpoint, if its log only grew since the old one; `now` as for `open_checkpoint`.

    Raises:
        BadNote.
    """
    parsed = parse_consistency(proof)
    checkpoint = open_checkpoint(parsed.checkpoint, keys, now)
    if checkpoint.origin != old.origin or parsed.old != old.size:
        raise BadNote("other_log", "the proof is of another log, or of another size")
    if not consistency_holds(old.size, checkpoint.size, parsed.path, old.root, checkpoint.root):
        raise BadNote("not_consistent", f"the log is not a continuation of its first {old.size} leaves as they were")
    return checkpoint


def parse_inclusion(text: str) -> InclusionProof:
    """A tlog-proof, read but not judged.

    Raises:
        BadNote.
    """
    head, checkpoint = _parted(text)
    if not head or head.pop(0) != PROOF_VERSION:
        raise BadNote("bad_proof", f"not a {PROOF_VERSION}")
    if head and head[0].startswith("extra "):
        head.pop(0)
    return InclusionProof(*_numbered(head, "index "), checkpoint)


def parse_consistency(text: str) -> ConsistencyProof:
    """A proof of consistency, read but not judged.

    Raises:
        BadNote.
    """
    head, checkpoint = _parted(text)
    return ConsistencyProof(*_numbered(head, "old "), checkpoint)


def note_key_id(name: str, public_key: Ed25519PublicKey, kind: bytes = SIGNATURE) -> bytes:
    """The 4 bytes that name a key in a signed note."""
    raw = public_key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return hashlib.sha256(name.encode() + b"\n" + kind + raw).digest()[:4]


def verifier_key(name: str, public_key: Ed25519PublicKey, kind: bytes = SIGNATURE) -> str:
    """A public key as tools for signed notes take it: name+id+base64."""
    raw = public_key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"{name}+{note_key_id(name, public_key, kind).hex()}+{_base64(kind + raw)}"


def signatures_of(note: str) -> tuple[Checkpoint, bytes, list[tuple[str, bytes]]]:
    """What a checkpoint says, whoever signed it; the bytes that are signed; each signature's name, key id and bytes.

    Raises:
        BadNote.
    """
    text, signatures = _signed(note)
    return _checkpoint(text, note), text.encode(), signatures


def _signed(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    if len(note) > MAX_CHARS or any((char < " " and char != "\n") or "\ud800" <= char <= "\udfff" for char in note):
        raise BadNote("bad_checkpoint", "too long, or with what is no text")
    text, parted, tail = note.rpartition("\n\n")
    lines = tail.split("\n")[:-1]
    if not parted or not tail.endswith("\n") or not 0 < len(lines) <= MAX_SIGNATURES:
        raise BadNote("bad_checkpoint", "not a signed note")
    return text + "\n", [_signature(line) for line in lines]


def _signature(line: str) -> tuple[str, bytes]:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != "—" or not parts[1]:
        raise BadNote("bad_checkpoint", "a line of signatures is none")
    signature = _unbase64(parts[2], "bad_checkpoint")
    if len(signature) < 5:
        raise BadNote("bad_checkpoint", "a line of signatures is none")
    return parts[1], signature


def _checkpoint(text: str, note: str) -> Checkpoint:
    lines = text.split("\n")[:-1]
    if len(lines) < 3 or not all(lines) or not _NUMBER.fullmatch(lines[1]):
        raise BadNote("bad_checkpoint", "lacks origin, size or root")
    root = _unbase64(lines[2], "bad_checkpoint")
    if len(root) != 32:
        raise BadNote("bad_checkpoint", "its root is no SHA-256")
    return Checkpoint(lines[0], int(lines[1]), root, note)


def _holds(key: Ed25519PublicKey, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True


def _parted(text: str) -> tuple[list[str], str]:
    if len(text) > MAX_CHARS:
        raise BadNote("bad_proof", "too long")
    head, parted, checkpoint = text.partition("\n\n")
    if not parted:
        raise BadNote("bad_proof", "lacks its checkpoint")
    return head.split("\n"), checkpoint


def _numbered(lines: Sequence[str], name: str) -> tuple[int, tuple[bytes, ...]]:
    number = lines[0].removeprefix(name) if lines and lines[0].startswith(name) else ""
    if not _NUMBER.fullmatch(number):
        raise BadNote("bad_proof", f"lacks a line '{name}N'")
    path = tuple(_unbase64(line, "bad_proof") for line in lines[1:])
    if any(len(step) != 32 for step in path) or len(path) > 64:
        raise BadNote("bad_proof", "its path is none of SHA-256 hashes")
    return int(number), path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str, rule: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadNote(rule, "a line is no base64") from None
    if _base64(data) != text:
        raise BadNote(rule, "a line is no canonical base64")
    return data
