"""Whose keys count, SSH's and passkeys: OpenSSH's file of allowed signers (ssh-keygen(1)), read from its text."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from aetheris.protocol.base.sshsig import SshKey, SshSignatureInvalid, read_key, unbase64

MAX_FILE_BYTES = 1024 * 1024

_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_OPTION = re.compile(r'(cert-authority)|(namespaces|valid-after|valid-before)="([^"\\]*)"', re.IGNORECASE)
_LINE = re.compile(r'([^ \t"]+)[ \t]+((?:[^ \t"]|"[^"]*")+)[ \t]+([^ \t]+)(?:[ \t]+([^ \t]+))?(?:[ \t].*)?')
_KEY_TYPE = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+")


class SignersInvalid(ValueError):
    """The file can't be used; the message says why, `line` where (from 1)."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class AllowedSigner:
    """One line: whose key it is, by patterns of names, for what and when."""

    principals: tuple[str, ...]
    key: SshKey
    namespaces: tuple[str, ...] | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def is_for(self, principal: str, namespace: str) -> bool:
        """Whether it gives the key to who has this name, for this."""
        named = _listed(self.principals, principal)
        return named and (self.namespaces is None or _listed(self.namespaces, namespace))

    def is_valid(self, at: datetime) -> bool:
        """Whether it counts at that time; both ends do."""
        begun = self.valid_after is None or at >= self.valid_after
        return begun and (self.valid_before is None or at <= self.valid_before)


@dataclass(frozen=True, slots=True)
class AllowedSigners:
    """All lines of a file; none: nobody's signature counts."""

    lines: tuple[AllowedSigner, ...] = ()

    def refusal(self, principal: str, key: SshKey, namespace: str, at: datetime) -> str | None:
        """Why a key doesn't sign for somebody at that time; None where it does."""
        of_key = [line for line in self.lines if line.key == key]
        if not of_key:
            return "no allowed signer has the key that signed"
        given = [line for line in of_key if line.is_for(principal, namespace)]
        if not given:
            return f"the key that signed is not allowed to sign for {principal}"
        return None if any(line.is_valid(at) for line in given) else "the key that signed is not valid at this time"


def parse_signers(text: str) -> AllowedSigners:
    """What a file says.

    Raises:
        SignersInvalid: naming the first line that can't be used.
    """
    return AllowedSigners(tuple(_lines(text.split("\n"))))


def _lines(lines: Iterable[str]) -> Iterator[AllowedSigner]:
    for number, line in enumerate(lines, start=1):
        try:
            stripped = _visible(line).strip(" \t")
            signer = _signer(stripped) if stripped and not stripped.startswith("#") else None
        except ValueError as error:
            raise SignersInvalid(str(error), number) from None
        if signer is not None:
            yield signer


def _visible(line: str) -> str:
    """The line, without the end that another system gives it; no reader may see two lines in it."""
    line = line.removesuffix("\r")
    if _CONTROL.search(line):
        raise ValueError("holds a control character")
    return line


def _signer(line: str) -> AllowedSigner:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("is not: names, options or none, type of the key, key")
    principals, second, third, fourth = found.groups()
    if '"' in principals:
        raise ValueError("names in quotes are not read")
    has_options = _KEY_TYPE.fullmatch(second) is None
    kind, encoded = (third, fourth) if has_options else (second, third)
    if _KEY_TYPE.fullmatch(kind) is None or encoded is None:
        raise ValueError("is not: names, options or none, type of the key, key")
    options = dict(_options(second)) if has_options else {}
    try:
        key = read_key(unbase64(encoded))
    except SshSignatureInvalid:
        said = f"holds neither an Ed25519 key nor a passkey's, which alone are taken (it says {kind})"
        raise ValueError(said) from None
    if not key.blob.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
        raise ValueError("the key is not of the type that stands before it")
    namespaces = options.get("namespaces")
    return AllowedSigner(
        tuple(principals.split(",")),
        key,
        tuple(namespaces.split(",")) if namespaces is not None else None,
        _time(options.get("valid-after")),
        _time(options.get("valid-before")),
    )


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Options as OpenSSH has them; nothing that is not understood is passed over."""
    at, seen = 0, set[str]()
    while True:
        found = _OPTION.match(text, at)
        if found is None:
            raise ValueError("an option is none of namespaces, valid-after, valid-before")
        authority, name, value = found.groups()
        if authority is not None:
            raise ValueError("cert-authority: certificates of SSH are not taken, only keys")
        name = name.lower()
        if name in seen:
            raise ValueError(f"{name} stands twice")
        seen.add(name)
        yield name, value
        at = found.end()
        if at == len(text):
            return
        if text[at] != ",":
            raise ValueError("options are parted by commas")
        at += 1


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    if not text.upper().endswith("Z"):
        raise ValueError("a time without a Z at its end is in the time zone of some machine: write it in UTC")
    digits = text[:-1]
    form = _TIMES.get(len(digits)) if digits.isascii() and digits.isdecimal() else None
    if form is not None:
        with suppress(ValueError):
            return datetime.strptime(digits, form).replace(tzinfo=UTC)
    raise ValueError("a time is YYYYMMDDZ, YYYYMMDDHHMMZ or YYYYMMDDHHMMSSZ")


def _listed(patterns: Iterable[str], text: str) -> bool:
    """OpenSSH's pattern list: one that fits, and none behind a ! that does."""
    fits = [pattern for pattern in patterns if _pattern(pattern.removeprefix("!")).fullmatch(text)]
    return bool(fits) and not any(pattern.startswith("!") for pattern in fits)


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in re.sub(r"\*+", "*", pattern))
    return re.compile("".join(parts), re.DOTALL)
