"""Files of keys: those that seal, of a data folder, and what an old one's word still counts for; public ones."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from aetheris.cli.console import CommandError, Exit
from aetheris.proofs.trust import LOG, SEAL, BadKeys, TrustedKey, read_keys, write_keys

FILES = {SEAL: "seal.pem", LOG: "log.pem"}


def rotate(folder: Path, use: str, *, revoke: bool) -> tuple[str, str]:
    """Make a new key for seals, or for the log; the old one is listed as ended now. Returns the key_ids of old and new.

    Raises:
        CommandError: there is no key to rotate, or the list can't be read.
    """
    private, listed = folder / FILES[use], folder / "seal-keys.json"
    old = TrustedKey(_private(private).public_key(), use=use)
    made = Ed25519PrivateKey.generate()
    new = TrustedKey(made.public_key(), use=use)
    now = datetime.now(UTC)
    known = {key.key_id: key for key in _listed(listed)}
    known.setdefault(old.key_id, old)
    ended = known[old.key_id]
    known[old.key_id] = replace(ended, revoked_at=now) if revoke else replace(ended, valid_until=now)
    known[new.key_id] = replace(new, valid_from=now)
    put(listed, write_keys(known.values()).encode(), 0o644)
    put(private, _pem(made), 0o600)
    return old.key_id, new.key_id


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise CommandError(Exit.BAD_INPUT, "key_missing", f"{path} holds no Ed25519 key to rotate")
    return key


def _listed(path: Path) -> list[TrustedKey]:
    try:
        return read_keys(path.read_bytes()) if path.exists() else []
    except BadKeys as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"{path}: {error}", file=str(path)) from None


def fresh_key() -> bytes:
    """A new private key, PEM."""
    return _pem(Ed25519PrivateKey.generate())


def raw_key_in(path: Path) -> bytes:
    """The 32 bytes of the public key in a PEM file.

    Raises:
        CommandError: it holds none.
    """
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise CommandError(Exit.BAD_INPUT, "bad_public_key", f"{path} holds no Ed25519 public key", file=str(path))
    return key.public_bytes_raw()


def put(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, in place of what is there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.touch(mode=mode)
    beside.write_bytes(content)
    beside.replace(path)
