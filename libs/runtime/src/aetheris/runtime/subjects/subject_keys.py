"""The store of subjects' keys: a folder, and no log. What is destroyed there is gone (docs/hidden-values.md).

names/<h>   {"k": pseudonym, "erased": time or null, "held": time or null}; no name lies here:
            h = HMAC-SHA-256(index key, tenant ␀ NFC(subject))
keys/<k>    {"wrapped": the subject's key, wrapped}, or {"erased": time}
untold/<k>  {"name": h, "erased": time, "order": who erases}: from before anything of an erasure is done until the log
            has it, so that whoever comes after a process that died ends it
index       {"wrapped": the index key, wrapped}

A subject's key is never rotated: what wraps it may be.
"""

import asyncio
import fcntl
import hmac
import json
import os
import re
import secrets
import threading
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from aetheris.protocol.base.hidden_values import KEY_BYTES
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.subjects.kms import (
    HiddenCorrupt,
    Kms,
    SubjectErased,
    SubjectHeld,
    SubjectKeyMissing,
    SubjectKeysAway,
)

T = TypeVar("T")

_PSEUDONYM = re.compile(r"[0-9a-f]{32}")
_MOST_HELD = 10_000
"""Keys in memory, unwrapped."""


@dataclass(frozen=True, slots=True)
class SubjectKey:
    """A subject's pseudonym and key."""

    k: str
    key: bytes


@dataclass(frozen=True, slots=True)
class ErasedSubject:
    """A subject whose key is destroyed: its pseudonym, and since when (RFC 3339)."""

    k: str
    at: str


@dataclass(frozen=True, slots=True)
class UntoldErasure:
    """An erasure of which nobody has told the log, as far as the store knows; `order` as `erase` was given it."""

    erased: ErasedSubject
    order: Mapping[str, Any]


class SubjectKeys:
    """Keys by subject, for who hides; by pseudonym, for who opens."""

    def __init__(self, folder: Path, kms: Kms, now: Callable[[], datetime]) -> None:
        self._names = folder / "names"
        self._keys = folder / "keys"
        self._untold = folder / "untold"
        self._index = folder / "index"
        self._kms = kms
        self._now = now
        self._index_key: bytes | None = None
        self._enrolling = threading.Lock()
        self._held: dict[str, tuple[tuple[int, int], bytes]] = {}
        """Pseudonym → what its file looked like, and the key: a file that is another one is read anew."""

    async def enrolled(self, tenant: str, subjects: Iterable[str]) -> dict[str, SubjectKey]:
        """The key of each subject; of one that is new, a fresh one.

        Raises:
            SubjectErased, SubjectKeysAway, HiddenCorrupt.
        """
        return await _in_thread(lambda: {name: self._enrolled(tenant, name) for name in subjects})

    async def known(self, pseudonyms: Iterable[str]) -> dict[str, bytes]:
        """The key behind each pseudonym.

        Raises:
            SubjectErased, SubjectKeyMissing, SubjectKeysAway, HiddenCorrupt.
        """
        return await _in_thread(lambda: {k: self._key(k) for k in pseudonyms})

    async def erase(self, tenant: str, subject: str, order: Mapping[str, Any] | None = None) -> ErasedSubject | None:
        """Destroy a subject's key, and remember that: again is the same. None where it has none.

        Args:
            order: JSON; who ends this after us must know it. It is kept until `told`; None: nobody is to be told.

        Raises:
            SubjectHeld: it is on hold, and nothing was destroyed.
            SubjectKeysAway: it may or may not be destroyed. Ask again.
        """
        return await _in_thread(lambda: self._erase(tenant, subject, order))

    async def untold(self) -> list[str]:
        """The pseudonyms of erasures that were begun, and of which nobody has told the log; raises SubjectKeysAway."""
        return await _in_thread(self._untold_names)

    async def ended(self, k: str) -> UntoldErasure | None:
        """Such an erasure, ended by now; None where another process has told of it.

        None also where it had destroyed nothing, and a hold came before it could.

        Raises:
            SubjectKeysAway.
        """
        return await _in_thread(lambda: self._ended(k))

    async def told(self, k: str) -> None:
        """The log has an erasure; raises SubjectKeysAway."""
        await _in_thread(lambda: (self._untold / k).unlink(missing_ok=True))

    async def hold(self, tenant: str, subject: str) -> str:
        """Keep a subject's key from being destroyed, also of one of whom nothing is hidden yet. Its pseudonym.

        Raises:
            SubjectErased: it is too late.
            SubjectKeysAway, HiddenCorrupt.
        """
        return await _in_thread(lambda: self._hold(tenant, subject))

    async def release(self, tenant: str, subject: str) -> str | None:
        """End the hold of a subject. Its pseudonym; None where it is not on hold.

        Raises:
            SubjectKeysAway.
        """
        return await _in_thread(lambda: self._release(tenant, subject))

    async def erased(self, tenant: str, subject: str) -> ErasedSubject | None:
        """The erasure of a subject that is not enrolled anew, its key gone by now; None where it is not erased.

        Raises:
            SubjectKeysAway.
        """
        return await _in_thread(lambda: self._erased(tenant, subject))

    async def enrol_anew(self, tenant: str, subject: str) -> str | None:
        """Let values of an erased subject be hidden again, under a fresh key: its new pseudonym.

        None where it is not erased.

        Raises:
            SubjectKeysAway.
        """
        return await _in_thread(lambda: self._enrol_anew(tenant, subject))

    def _enrolled(self, tenant: str, subject: str) -> SubjectKey:
        path = self._name(tenant, subject)
        self._make_name(path)
        k = _standing(path)
        return SubjectKey(k, self._key(k))

    def _make_name(self, path: Path) -> None:
        if _read(path) is None:
            with self._enrolling:
                if _read(path) is None:
                    _make(path, {"k": self._fresh(), "erased": None})

    def _fresh(self) -> str:
        k, key = secrets.token_hex(16), secrets.token_bytes(KEY_BYTES)
        _make(self._keys / k, {"wrapped": self._kms.wrap(key, f"subject {k}".encode())})
        return k

    def _key(self, k: str) -> bytes:
        if not _PSEUDONYM.fullmatch(k):
            raise SubjectKeyMissing("no pseudonym")
        path = self._keys / k
        try:
            seen = path.stat()
        except FileNotFoundError:
            raise SubjectKeyMissing("there is no such key here") from None
        look = (seen.st_ino, seen.st_mtime_ns)
        held = self._held.get(k)
        if held is not None and held[0] == look:
            return held[1]
        self._held.pop(k, None)
        found = _read(path)
        if found is None:
            raise SubjectKeyMissing("there is no such key here")
        if found.get("erased") is not None:
            raise SubjectErased("the subject was erased")
        key = self._kms.unwrap(str(found.get("wrapped")), f"subject {k}".encode())
        if len(key) != KEY_BYTES:
            raise HiddenCorrupt("a subject's key is none")
        if len(self._held) >= _MOST_HELD:
            self._held.clear()
        self._held[k] = look, key
        return key

    def _hold(self, tenant: str, subject: str) -> str:
        path = self._name(tenant, subject)
        self._make_name(path)
        with self._alone():
            k, held = _standing(path), (_read(path) or {}).get("held")
            write_whole(path, _encoded({"k": k, "erased": None, "held": held or self._now().isoformat()}))
            return k

    def _release(self, tenant: str, subject: str) -> str | None:
        path = self._name(tenant, subject)
        with self._alone():
            found = _read(path)
            if found is None or found.get("held") is None:
                return None
            write_whole(path, _encoded({**found, "held": None}))
            return str(found.get("k"))

    def _erase(self, tenant: str, subject: str, order: Mapping[str, Any] | None) -> ErasedSubject | None:
        path = self._name(tenant, subject)
        with self._alone():
            found = _read(path)
            if found is None:
                return None
            if found.get("held") is not None:
                raise SubjectHeld("the subject is on hold")
            k, at = str(found.get("k")), found.get("erased") or self._now().isoformat()
            if order is not None:
                self._untold.mkdir(exist_ok=True, mode=0o700)
                write_whole(self._untold / k, _encoded({"name": path.name, "erased": at, "order": order}))
            write_whole(path, _encoded({"k": k, "erased": at}))  # first: from here on nobody hides anything under it
            self._destroy(k, at)
            return ErasedSubject(k, at)

    def _untold_names(self) -> list[str]:
        try:
            return sorted(filter(_PSEUDONYM.fullmatch, os.listdir(self._untold)))
        except FileNotFoundError:
            return []

    def _ended(self, k: str) -> UntoldErasure | None:
        """An erasure, ended as it was begun; None where another process has told of it, or it is none."""
        with self._alone():
            said = _read(self._untold / k)
            if said is None:
                return None
            name, at, order = said.get("name"), said.get("erased"), said.get("order")
            if not isinstance(name, str) or not isinstance(at, str) or not isinstance(order, dict):
                raise SubjectKeysAway("an entry of the store of subjects' keys can't be read")
            found = _read(self._names / name) or {}
            if found.get("k") == k and found.get("erased") is None:
                if found.get("held") is not None:
                    (self._untold / k).unlink()
                    return None
                write_whole(self._names / name, _encoded({"k": k, "erased": at}))
            self._destroy(k, at)
            return UntoldErasure(ErasedSubject(k, at), cast("dict[str, Any]", order))

    def _destroy(self, k: str, at: str) -> None:
        held = _read(self._keys / k)
        if held is not None and held.get("erased") is None:
            _overwrite(self._keys / k, {"erased": at})
            write_whole(self._keys / k, _encoded({"erased": at}))
        self._held.pop(k, None)

    def _erased(self, tenant: str, subject: str) -> ErasedSubject | None:
        with self._alone():
            found = _read(self._name(tenant, subject)) or {}
            if found.get("erased") is None:
                return None
            k, at = str(found.get("k")), str(found["erased"])
            self._destroy(k, at)  # an erasure that was cut short left it
            return ErasedSubject(k, at)

    def _enrol_anew(self, tenant: str, subject: str) -> str | None:
        path = self._name(tenant, subject)
        with self._alone():
            found = _read(path)
            if found is None or found.get("erased") is None:
                return None
            self._destroy(str(found.get("k")), str(found["erased"]))  # an erasure that was cut short left it
            k = self._fresh()
            write_whole(path, _encoded({"k": k, "erased": None}))
            return k

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Of all processes: of two that name a subject anew, one key would be left that nobody erases.

        And who is put on hold is not erased by who looked before.
        """
        with (self._names.parent / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _name(self, tenant: str, subject: str) -> Path:
        if self._index_key is None:
            if _read(self._index) is None:
                fresh = secrets.token_bytes(KEY_BYTES)
                _make(self._index, {"wrapped": self._kms.wrap(fresh, b"index")})
            found = _read(self._index) or {}
            self._index_key = self._kms.unwrap(str(found.get("wrapped")), b"index")
        person = unicodedata.normalize("NFC", subject)  # however its letters are put together
        name = hmac.digest(self._index_key, f"{tenant}\0{person}".encode(errors="surrogatepass"), "sha256").hex()
        return self._names / name


def refusal_of(folder: Path) -> str | None:
    """Why keys can't be kept in a folder: its file system lacks what makes two processes agree. None where they can.

    Whether other hosts see the links and the locks nobody can tell from here.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    probe = folder / f".probe.{secrets.token_hex(8)}"
    other = probe.with_suffix(".linked")
    try:
        with probe.open("xb") as file:
            other.hardlink_to(probe)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None if probe.stat().st_nlink == 2 else "its file system has no hard links"
    except OSError as error:
        return f"its file system has no hard links or locks, or may not be written: {error.strerror}"
    finally:
        other.unlink(missing_ok=True)
        probe.unlink(missing_ok=True)


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise SubjectKeysAway(f"the store of subjects' keys does not answer: {type(error).__name__}") from None


def _standing(path: Path) -> str:
    """The pseudonym under a name; raises SubjectErased."""
    found = _read(path) or {}
    if found.get("erased") is not None:
        raise SubjectErased("the subject was erased")
    return str(found.get("k"))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise SubjectKeysAway("an entry of the store of subjects' keys can't be read") from None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _make(path: Path, body: dict[str, Any]) -> None:
    """Whole, on the disk and readable by us alone; of two that try, the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_encoded(body))
        file.flush()
        os.fsync(file.fileno())
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _overwrite(path: Path, body: dict[str, Any]) -> None:
    """In place, and readable whoever dies here; what the file system does with its blocks is its own affair."""
    with path.open("r+b") as file:
        file.write(_encoded(body).ljust(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())
