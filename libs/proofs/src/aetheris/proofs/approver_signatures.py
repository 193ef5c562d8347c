"""What approvers signed with SSH keys and passkeys of their own: SSHSIG, and OpenSSH's allowed signers."""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aetheris.proofs import passkeys
from aetheris.proofs.canonical import canonical
from aetheris.proofs.passkeys import PasskeySignature
from aetheris.proofs.signatures import is_by

NAMESPACE = "aetheris-approval"
PLAIN, TOUCHED = b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com"
PASSKEY = b"sk-ecdsa-sha2-nistp256@openssh.com"

_LONGEST = 4_096
_ARMOR = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END SSH SIGNATURE-----(?:\r?\n)?"
)
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_LINE = re.compile(
    r'([^ \t"]+)[ \t]+(?:((?:[^ \t"]|"[^"]*")+)[ \t]+)?'
    r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+([^ \t]+)(?:[ \t].*)?"
)
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_OPTION = re.compile(r'(namespaces|valid-after|valid-before)="([^"\\]*)"(?:,|\Z)', re.IGNORECASE)
_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:aetheris")


class BadSigners(Exception):
    """A file of allowed signers that can't be used; `line` (from 1) says where, the message why."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class TrustedSigner:
    """A line of the file: whose key (as SSH writes it) it is, by patterns of names, for what and when."""

    names: Sequence[str]
    key: bytes
    namespaces: Sequence[str] = ("*",)
    after: datetime | None = None
    before: datetime | None = None

    def gives(self, key: bytes, name: str, at: datetime) -> bool:
        """Does it give this key to who has this name, at this time, for approvals?"""
        in_time = (self.after is None or self.after <= at) and (self.before is None or at <= self.before)
        return key == self.key and in_time and _fits(self.names, name) and _fits(self.namespaces, NAMESPACE)


@dataclass(frozen=True, slots=True)
class Opened:
    """A signature: the key as SSH writes it, and what else it says; a passkey's application is its host."""

    key: bytes
    raw_key: bytes
    application: bytes | None
    namespace: bytes
    hash_name: bytes
    value: bytes | PasskeySignature
    details: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")

    def holds(self, message: bytes) -> bool:
        """Did its key sign this message as an approval?"""
        digest = _HASHES[self.hash_name](message).digest()
        signed = b"SSHSIG" + b"".join(map(_string, (self.namespace, b"", self.hash_name, digest)))
        if self.namespace != NAMESPACE.encode():
            return False
        if isinstance(self.value, PasskeySignature):
            return self.value.holds(self.raw_key, self.application or b"", signed)
        if self.application is not None:
            signed = hashlib.sha256(self.application).digest() + self.details + hashlib.sha256(signed).digest()
        return is_by(self.raw_key, self.value, signed)


def opened(armored: object) -> Opened | None:
    """A signature by an Ed25519 key, in a file or on a security key that was touched, or by a passkey; else None."""
    found = _ARMOR.fullmatch(armored) if isinstance(armored, str) and len(armored) <= _LONGEST else None
    try:
        return _opened(_unbase64("".join(found[1].split()))) if found is not None else None
    except ValueError:
        return None


def read_signers(data: bytes) -> list[TrustedSigner]:
    """A file of allowed signers.

    Raises:
        BadSigners: naming the first line that can't be used.
    """
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise BadSigners("is no UTF-8", 1) from None
    found: list[TrustedSigner] = []
    for number, line in enumerate(lines, start=1):
        try:
            said = _visible(line).strip(" \t")
            if said and not said.startswith("#"):
                found.append(_signer(said))
        except ValueError as error:
            raise BadSigners(str(error), number) from None
    return found


def given_to(signers: Iterable[TrustedSigner], key: bytes, name: str, time: str) -> bool:
    """Does any line give the key to who has this name, at a record's time?"""
    try:
        at = datetime.fromisoformat(time)
    except ValueError:
        return False
    return at.tzinfo is not None and any(one.gives(key, name, at) for one in signers)


def request_id(job: str, node: str, key: str, token: object) -> str:
    """The id of the request about a call, and about its retry by hand.

    Raises:
        ValueError: a name has no UTF-8 form.
    """
    asked = f"{job}:{uuid.uuid5(_ROOT, chr(0).join(('execution', job, node, key)))}"
    return asked if token == 1 else f"{asked}:{token}"


def signed_text(asked: Mapping[str, Any], said: Mapping[str, Any]) -> bytes:
    """What is signed of a request and of what somebody says to it, in this order.

    Raises:
        ValueError: a value has no canonical form.
    """
    lines = [b"%b: %b\n" % (name.encode(), canonical(value)) for name, value in {**asked, **said}.items()]
    return b"".join((b"aetheris approval 1\n", *lines))


def _opened(blob: bytes) -> Opened:
    head, rest = blob[:10], blob[10:]
    if head != b"SSHSIG\0\0\0\1":
        raise ValueError("another version")
    key, namespace, reserved, hash_name, signed = _strings(rest, 5)
    kind, raw_key, application = _known(key)
    if reserved or hash_name not in _HASHES:
        raise ValueError("of another kind")
    if kind == PASSKEY:
        return Opened(key, raw_key, application, namespace, hash_name, _by_passkey(signed), b"")
    value_kind, value = _strings(signed[:-5] if application is not None else signed, 2)
    details = signed[-5:] if application is not None else b""
    if value_kind != kind or len(value) != 64 or (details and not details[0] & 1):
        raise ValueError("not by its key")
    return Opened(key, raw_key, application, namespace, hash_name, value, details)


def _by_passkey(signed: bytes) -> PasskeySignature:
    """Type, numbers; flags and a counter; origin, client data, extensions."""
    (kind, numbers), rest = _taken(signed, 2)
    origin, client_data, extensions = _strings(rest[5:], 3)
    if kind != b"webauthn-" + PASSKEY:
        raise ValueError("not by its key")
    return passkeys.read(_strings(numbers, 2), rest[:5] + extensions, origin, client_data)


def _known(key: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Type, public key, and what it is for."""
    kind, *parts = _strings(key)
    if kind == PASSKEY and len(parts) == 3 and passkeys.is_key(*parts):
        return kind, parts[1], parts[2]
    if (kind, len(parts)) not in ((PLAIN, 1), (TOUCHED, 2)) or len(parts[0]) != 32:
        raise ValueError("of another kind")
    return kind, parts[0], parts[1] if parts[1:] else None


def _strings(data: bytes, count: int | None = None) -> list[bytes]:
    """All strings of a blob, each behind its length; of just as many, or two and more."""
    found: list[bytes] = []
    while data:
        (one,), data = _taken(data, 1)
        found.append(one)
    if len(found) != count if count is not None else len(found) < 2:
        raise ValueError("another number of strings")
    return found


def _taken(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    """So many strings, and what lies behind them."""
    found: list[bytes] = []
    for _ in range(count):
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            raise ValueError("cut off")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found, data


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _unbase64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
    if base64.b64encode(data).decode() != text:
        raise ValueError("no base64")
    return data


def _visible(line: str) -> str:
    """The line, without the end that another system gives it; no reader may see two lines in it."""
    line = line.removesuffix("\r")
    if _CONTROL.search(line):
        raise ValueError("holds a control character")
    return line


def _signer(line: str) -> TrustedSigner:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise ValueError("is not: names, options or none, type of the key, key")
    names, found = parts[1], dict(_options(parts[2] or ""))
    try:
        key = _unbase64(parts[4])
        kind, _, _ = _known(key)
    except ValueError:
        raise ValueError("holds neither an Ed25519 key nor a passkey's, which alone are taken") from None
    if kind != parts[3].encode():
        raise ValueError("the key is not of the type that stands before it")
    spaces = found.get("namespaces", "*").split(",")
    return TrustedSigner(names.split(","), key, spaces, _time(found, "valid-after"), _time(found, "valid-before"))


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Nothing that is not understood is passed over."""
    seen: set[str] = set()
    while text:
        option = _OPTION.match(text)
        if option is None or option[1].lower() in seen or text.endswith(","):
            raise ValueError("an option is none of namespaces, valid-after, valid-before, each once; no cert-authority")
        seen.add(option[1].lower())
        yield option[1].lower(), option[2]
        text = text[option.end() :]


def _time(options: Mapping[str, str], name: str) -> datetime | None:
    text = options.get(name)
    if text is None:
        return None
    form = _TIMES.get(len(text) - 1) if re.fullmatch("[0-9]+[Zz]", text) else None
    if form is not None:
        with suppress(ValueError):
            return datetime.strptime(text[:-1], form).replace(tzinfo=UTC)
    raise ValueError("a time is YYYYMMDDZ, YYYYMMDDHHMMZ or YYYYMMDDHHMMSSZ, in UTC")


def _fits(patterns: Iterable[str], text: str) -> bool:
    """OpenSSH's list of patterns: one fits, and none that stands behind a ! does."""
    fits = [one for one in patterns if re.fullmatch(_pattern(one.removeprefix("!")), text, re.DOTALL)]
    return bool(fits) and not any(one.startswith("!") for one in fits)


def _pattern(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in pattern)
