"""The key that seals: Ed25519, in a file that only this service reads (docs/guarantees.md)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from aetheris.proofs.seals import sign


class SealKeyMissing(Exception):
    """No key to seal with: set AETHERIS_SEAL_KEY to a PEM file with an Ed25519 private key."""

    code = "seal_key_missing"


class SealKey:
    """Signs seals."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key

    @property
    def public_key(self) -> Ed25519PublicKey:
        """What checks them."""
        return self._private_key.public_key()

    @property
    def public_pem(self) -> str:
        """The public key, for whoever checks offline."""
        return self.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The payload with its key_id and signature."""
        return sign(payload, self._private_key)


def load_seal_key(path: Path | None, data: Path, *, dev: bool) -> SealKey:
    """The key of `path`; in dev, one of the data folder's own, made once.

    Raises:
        SealKeyMissing: no path is set, or it holds no Ed25519 key.
    """
    if path is None:
        if not dev:
            raise SealKeyMissing(SealKeyMissing.__doc__)
        path = data / "keys" / "seal.pem"
        if not path.exists():
            _make(path)
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise SealKeyMissing(f"{path} holds no readable private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SealKeyMissing(f"{path} holds no Ed25519 key")
    return SealKey(key)


def _make(path: Path) -> None:
    """Whole or not at all, readable by us alone; of two that try, the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.touch(mode=0o600)
    beside.write_bytes(pem)
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
