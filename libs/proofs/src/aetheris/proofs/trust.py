"""The keys that seals are taken from: until when each is good, and from when one is revoked (docs/evidence.md).

{"keys": [{"key_id": …, "public_key": PEM, "use"?: …, "valid_from"?: RFC 3339, "valid_until"?: …, "revoked_at"?: …}]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from aetheris.proofs.seals import key_id

NEVER = datetime.max.replace(tzinfo=UTC)
"""A now at which every key that ends has ended."""
SEAL, LOG = "seal", "log"
"""What a key signs: seals and envelopes, or checkpoints of the log of seals."""
MOMENTS = ("valid_from", "valid_until", "revoked_at")


class BadKeys(ValueError):
    """A file of keys that can't be used; the message says which entry, never what it holds."""

    code = "bad_public_key"


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, and when what it signs counts: from `valid_from` up to, without, `valid_until`.

    From `revoked_at` on nothing that it signs counts; and no envelope or checkpoint at all, which say no time.
    Those count no longer once it has retired, either. `use` is `SEAL` or `LOG`; empty where nobody says: then for both.
    """

    public_key: Ed25519PublicKey
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    revoked_at: datetime | None = None
    use: str = ""
    key_id: str = field(init=False, compare=False)
    """What names the key."""

    def __post_init__(self) -> None:
        """Named once: each seal asks for it."""
        object.__setattr__(self, "key_id", key_id(self.public_key))

    def refusal(self, signed_at: str) -> tuple[str, str] | None:
        """(rule, why) where a seal of that time doesn't count."""
        if (self.valid_from, self.valid_until, self.revoked_at) == (None, None, None):
            return None
        at = moment(signed_at)
        if at is None:
            return "seal_time", "the seal's time can't be read, and its key counts only at some times"
        if self.revoked_at is not None and at >= self.revoked_at:
            return "seal_revoked_key", "the seal's key was revoked before"
        early = self.valid_from is not None and at < self.valid_from
        late = self.valid_until is not None and at >= self.valid_until
        return ("seal_key_time", "the seal's key was not valid then") if early or late else None

    def ended(self, now: datetime) -> str:
        """Why nothing counts that it signs and that says no time: "revoked", or "retired"; empty where it does.

        Whoever has the key could have signed that just now.
        """
        if self.revoked_at is not None:
            return "revoked"
        return "retired" if self.valid_until is not None and now >= self.valid_until else ""

    def to_json(self) -> dict[str, str]:
        """An entry of a file of keys."""
        pem = self.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        moments = {name: getattr(self, name) for name in MOMENTS}
        use = {"use": self.use} if self.use else {}
        return (
            {"key_id": self.key_id, "public_key": pem}
            | use
            | {name: at.isoformat() for name, at in moments.items() if at is not None}
        )


def keyring(keys: Iterable[TrustedKey], use: str) -> Mapping[str, TrustedKey]:
    """Those that may be used so, by their key_id."""
    return {key.key_id: key for key in keys if key.use in ("", use)}


def read_keys(text: bytes) -> list[TrustedKey]:
    """The keys of a file: one public key in PEM, good at any time, or JSON as above.

    Raises:
        BadKeys.
    """
    if text.lstrip().startswith(b"-----"):
        return [TrustedKey(_public_key(text, "the file"))]
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise BadKeys("neither an Ed25519 public key in PEM nor JSON") from None
    entries: Any = cast("dict[str, Any]", parsed).get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise BadKeys("no list of keys")
    return keys_of(cast("list[Any]", entries))


def keys_of(entries: Sequence[Any]) -> list[TrustedKey]:
    """The keys of parsed entries.

    Raises:
        BadKeys: naming the entry; also where one key_id comes twice.
    """
    found = [_key(entry, f"keys[{number}]") for number, entry in enumerate(entries)]
    if len({key.key_id for key in found}) != len(found):
        raise BadKeys("a key comes twice")
    return found


def write_keys(keys: Iterable[TrustedKey]) -> str:
    """A file of keys."""
    return json.dumps({"keys": [key.to_json() for key in keys]}, indent=2) + "\n"


def moment(text: str) -> datetime | None:
    """An RFC 3339 time with its offset; None for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _key(entry: Any, where: str) -> TrustedKey:
    fields: dict[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    key = _public_key(str(fields.get("public_key")).encode(errors="replace"), where)
    if fields.get("key_id", key_id(key)) != key_id(key):
        raise BadKeys(f"{where}.key_id is not its public key's")
    use = fields.get("use", "")
    if use not in ("", SEAL, LOG):
        raise BadKeys(f"{where}.use is neither {SEAL} nor {LOG}")
    return TrustedKey(key, **{name: _moment(fields.get(name), f"{where}.{name}") for name in MOMENTS}, use=str(use))


def _moment(value: Any, where: str) -> datetime | None:
    if value is None:
        return None
    at = moment(value) if isinstance(value, str) else None
    if at is None:
        raise BadKeys(f"{where} is no RFC 3339 time")
    return at


def _public_key(pem: bytes, where: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKeys(f"{where} is no Ed25519 public key in PEM")
    return key
