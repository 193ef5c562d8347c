"""What witnesses say of a log, and who must have said it: C2SP tlog-cosignature and tlog-policy (docs/evidence.md).

Keys are Ed25519: a log's of type 01, a witness's of type 04 (cosignature/v1).
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.proofs.merkle import inclusion_holds, leaf_hash
from aetheris.proofs.notes import (
    COSIGNATURE,
    SIGNATURE,
    BadNote,
    Checkpoint,
    note_key_id,
    parse_inclusion,
    signatures_of,
)
from aetheris.proofs.seals import SigningKey

MAX_BYTES = 1 << 20
MAX_LINES = 4096
_TIME_BYTES, _SIGNATURE_BYTES = 8, 64
_LAST_TIME = 2**63 - 1
_LATEST = int(datetime.max.replace(tzinfo=UTC).timestamp())
_ALLOWED = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_NONE = "none"


class BadLogPolicy(ValueError):
    """A policy that can't be used; the message says which line, and why."""

    code = "bad_log_policy"


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A verifier key: who signs notes, under which name. `id` is 4 bytes; `kind` is SIGNATURE or COSIGNATURE."""

    name: str
    id: bytes
    kind: bytes
    public_key: Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class Witness:
    """Its key, and where it takes checkpoints; empty where the policy doesn't say."""

    name: str
    key: NoteKey
    url: str


@dataclass(frozen=True, slots=True)
class WitnessGroup:
    """So many of these, witnesses or groups, must have seen it."""

    least: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class LogPolicy:
    """Which logs count, and who must have seen a checkpoint: `quorum` names a witness or a group, or is none."""

    logs: tuple[NoteKey, ...]
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, WitnessGroup]
    quorum: str

    def is_met(self, seen: Iterable[str]) -> bool:
        """Whether these witnesses are enough."""
        met = {*seen, _NONE}
        for name, group in self.groups.items():  # each names what stands before it
            if sum(member in met for member in group.members) >= group.least:
                met.add(name)
        return self.quorum in met


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A checkpoint that its policy's quorum has seen, all of them by `at`; None where the policy asks for nobody."""

    checkpoint: Checkpoint
    at: datetime | None
    by: tuple[str, ...]


def read_vkey(text: str, kinds: Sequence[bytes] = (SIGNATURE, COSIGNATURE)) -> NoteKey:
    """A verifier key: name+id+base64.

    Raises:
        ValueError: it is none, or of a kind that isn't taken here.
    """
    name, _, rest = text.partition("+")
    named, _, encoded = rest.partition("+")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    kind, raw = data[:1], data[1:]
    if not name or kind not in kinds or len(raw) != 32 or base64.b64encode(data).decode() != encoded:
        raise ValueError("no verifier key of a kind that is taken here")
    key = Ed25519PublicKey.from_public_bytes(raw)
    identity = note_key_id(name, key, kind)
    if named != identity.hex():
        raise ValueError("a verifier key whose id is not its key's")
    return NoteKey(name, identity, kind, key)


def read_log_policy(data: bytes) -> LogPolicy:
    """A policy's file.

    Raises:
        BadLogPolicy.
    """
    if len(data) > MAX_BYTES or not _ALLOWED.fullmatch(data):
        raise BadLogPolicy("too long, or with a control character")
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) > MAX_LINES:
        raise BadLogPolicy(f"more than {MAX_LINES} lines")
    draft = _Draft()
    for number, line in enumerate(lines, start=1):
        words = [word for word in re.split(r"[ \t]+", line) if word]
        if words and not words[0].startswith("#"):
            try:
                draft.take(words)
            except ValueError as error:
                raise BadLogPolicy(f"line {number}: {error}") from None
    if not draft.quorum:
        raise BadLogPolicy("has no quorum")
    return LogPolicy(tuple(draft.logs), draft.witnesses, draft.groups, draft.quorum)


class _Draft:
    """A policy as far as it is read."""

    def __init__(self) -> None:
        self.logs: list[NoteKey] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, WitnessGroup] = {}
        self.quorum = ""
        self._grouped: set[str] = set()

    def take(self, words: list[str]) -> None:
        """Raises ValueError."""
        kind, *rest = words
        if kind == "log" and len(rest) in (1, 2):
            self.logs.append(self._fresh(read_vkey(rest[0], (SIGNATURE,)), self.logs))
        elif kind == "witness" and len(rest) in (2, 3):
            known = [witness.key for witness in self.witnesses.values()]
            key = self._fresh(read_vkey(rest[1], (COSIGNATURE,)), known)
            self.witnesses[self._new(rest[0])] = Witness(rest[0], key, rest[2] if len(rest) > 2 else "")
        elif kind == "group" and len(rest) > 2:
            self._group(rest[0], rest[1], rest[2:])
        elif kind == "quorum" and len(rest) == 1 and not self.quorum:
            if rest[0] != _NONE and rest[0] not in {*self.witnesses, *self.groups}:
                raise ValueError(f"{rest[0]!a} is not defined before")
            self.quorum = rest[0]
        else:
            raise ValueError("no line of a policy, or a second quorum")

    def _group(self, name: str, least: str, members: list[str]) -> None:
        for member in members:
            if member not in {*self.witnesses, *self.groups} or member in self._grouped:
                raise ValueError(f"{member!a} is not defined before, or is in a group already")
            self._grouped.add(member)
        wanted = {"all": len(members), "any": 1}.get(least) or (int(least) if _NUMBER.fullmatch(least) else 0)
        if not 1 <= wanted <= len(members):
            raise ValueError(f"a group of {len(members)} can't ask for {least!a}")
        self.groups[self._new(name)] = WitnessGroup(wanted, tuple(members))

    def _new(self, name: str) -> str:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise ValueError(f"{name!a} is defined twice")
        return name

    @staticmethod
    def _fresh(key: NoteKey, known: Sequence[NoteKey]) -> NoteKey:
        if any(one.public_key == key.public_key for one in known):
            raise ValueError("the key comes twice")
        return key


def cosigned(text: bytes, at: int) -> bytes:
    """What a witness signs of a checkpoint's text at a time, in seconds since the epoch."""
    return b"cosignature/v1\ntime %d\n%b" % (at, text)


def cosign(note: str, name: str, private_key: SigningKey, at: int) -> str:
    """A witness's line under a checkpoint.

    Raises:
        BadNote.
    """
    _, text, _ = signatures_of(note)
    identity = note_key_id(name, private_key.public_key(), COSIGNATURE)
    signature = identity + at.to_bytes(_TIME_BYTES, "big") + private_key.sign(cosigned(text, at))
    return f"— {name} {base64.b64encode(signature).decode()}\n"


def seen_by(note: str, witnesses: Iterable[NoteKey]) -> Mapping[tuple[str, bytes], int]:
    """(name, key id) of each of these witnesses that has cosigned a checkpoint, and when it did first.

    Raises:
        BadNote: it is no checkpoint, or one of their cosignatures doesn't hold.
    """
    _, text, signatures = signatures_of(note)
    known = {(key.name, key.id): key for key in witnesses}
    found: dict[tuple[str, bytes], int] = {}
    for name, signature in signatures:
        key = known.get((name, signature[:4]))
        if key is None:
            continue
        at = int.from_bytes(signature[4 : 4 + _TIME_BYTES], "big")
        whole = len(signature) == 4 + _TIME_BYTES + _SIGNATURE_BYTES and 0 < at <= _LAST_TIME
        if not whole or not _holds(key.public_key, signature[4 + _TIME_BYTES :], cosigned(text, at)):
            raise BadNote("cosignature", "a cosignature is not its witness's")
        found[name, key.id] = min(at, found.get((name, key.id), at))
    return found


def open_logged(note: str, logs: Iterable[NoteKey]) -> Checkpoint:
    """What a checkpoint says, if one of these logs signed it under its own origin; `note` with those signatures alone.

    Raises:
        BadNote.
    """
    checkpoint, text, signatures = signatures_of(note)
    known = {(key.name, key.id): key for key in logs if key.name == checkpoint.origin}
    signed = [(name, one) for name, one in signatures if (name, one[:4]) in known]
    if not all(_holds(known[name, one[:4]].public_key, one[4:], text) for name, one in signed):
        raise BadNote("checkpoint_signature", "the checkpoint's signature is not its key's")
    if not signed:
        raise BadNote("checkpoint_unknown_log", "signed by no log that is known, under its own origin")
    lines = "".join(f"— {name} {base64.b64encode(one).decode()}\n" for name, one in signed)
    return replace(checkpoint, note=f"{text.decode()}\n{lines}")


def open_witnessed(note: str, policy: LogPolicy) -> Witnessed:
    """What a checkpoint says, if it is of one of the policy's logs, and its quorum has seen it.

    Raises:
        BadNote.
    """
    checkpoint = replace(open_logged(note, policy.logs), note=note)
    times = seen_by(note, (witness.key for witness in policy.witnesses.values()))
    by = {
        name: times[witness.key.name, witness.key.id]
        for name, witness in policy.witnesses.items()
        if (witness.key.name, witness.key.id) in times
    }
    in_order = sorted(by, key=by.__getitem__)
    enough = next((count for count in range(len(by) + 1) if policy.is_met(in_order[:count])), None)
    if enough is None:
        raise BadNote("no_quorum", f"seen by {len(by)} witnesses of the policy, which are not enough")
    at = datetime.fromtimestamp(min(by[in_order[enough - 1]], _LATEST), UTC) if enough else None
    return Witnessed(checkpoint, at, tuple(in_order))


def open_witnessed_inclusion(proof: str, data: bytes, policy: LogPolicy) -> Witnessed:
    """The witnessed checkpoint in which a leaf with these bytes is.

    Raises:
        BadNote.
    """
    parsed = parse_inclusion(proof)
    found = open_witnessed(parsed.checkpoint, policy)
    checkpoint = found.checkpoint
    if not inclusion_holds(leaf_hash(data), parsed.index, checkpoint.size, parsed.path, checkpoint.root):
        raise BadNote("not_included", f"leaf {parsed.index} of the checkpoint's tree is another")
    return found


def _holds(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True
