"""The keys that seal: Ed25519, the private one in a file, a token, or a Vault (docs/evidence.md)."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from aetheris.proofs.notes import sign_checkpoint
from aetheris.proofs.seals import SigningKey, sign
from aetheris.proofs.trust import BadKeys, TrustedKey, read_keys
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.keys.files import make_key
from aetheris.verifier.token_key import KeyUri, TokenKey
from aetheris.verifier.vault_key import SCHEMES, VaultKey, VaultUri

LISTED = "seal-keys.json"
PUBLIC = "seal.pub"


class SealKeyMissing(StartRefused):
    """No key to seal with: set AETHERIS_SEAL_KEY to a PEM file with an Ed25519 key, or AETHERIS_SEAL_KEY_URI."""

    code = "seal_key_missing"


class SealKeyUnusable(StartRefused):
    """The list of public keys (AETHERIS_SEAL_KEYS) can't be read, or forbids the key that seals."""

    code = "seal_key_unusable"


class SealKeys:
    """The key that signs, and every key whose seals count: the one that signs now, and those before it."""

    def __init__(self, private_key: SigningKey, listed: Sequence[TrustedKey] = ()) -> None:
        self._private_key = private_key
        own = TrustedKey(private_key.public_key())
        known = {own.key_id: own} | {key.key_id: key for key in listed}
        self.current = known[own.key_id]
        self.trusted = tuple(known.values())

    @property
    def is_elsewhere(self) -> bool:
        """Whether signing waits for somebody else: it belongs into a thread, and may raise KeyAway."""
        return isinstance(self._private_key, TokenKey | VaultKey)

    def sign(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The payload with its key_id and signature."""
        return sign(payload, self._private_key)

    def sign_envelope(self, message: bytes) -> Mapping[str, str]:
        """A signature as an envelope has it."""
        signature = base64.b64encode(self._private_key.sign(message)).decode()
        return {"keyid": self.current.key_id, "sig": signature}

    def sign_checkpoint(self, origin: str, size: int, root: bytes) -> str:
        """A checkpoint of the log of seals."""
        return sign_checkpoint(origin, size, root, self._private_key)


def signing_key(path: Path | None, uri: str | None, data: Path, *, dev: bool) -> SigningKey:
    """The key of a file, or that of a token or a Vault; in dev, one of the data folder, made once.

    Raises:
        SealKeyMissing: neither is named, or the file holds no Ed25519 key.
        SealKeyUnusable: both are named.
        TokenKeyUnusable: the token or the Vault, or what the URI says of it.
    """
    if path is not None and uri is not None:
        raise SealKeyUnusable("AETHERIS_SEAL_KEY and AETHERIS_SEAL_KEY_URI both name a key: which one seals?")
    if uri is not None and uri.startswith(SCHEMES):
        return VaultKey(VaultUri.parse(uri))
    if uri is not None:
        return TokenKey(KeyUri.parse(uri))
    return load_private_key(path) if path is not None else _made_once(data / "keys", dev=dev)


def seal_keys(own: SigningKey, listed: Path) -> SealKeys:
    """The key that seals, among the public keys listed.

    Raises:
        SealKeyUnusable: the list can't be read, or says that the key no longer signs.
    """
    keys = SealKeys(own, _listed(listed))
    if keys.current.revoked_at is not None or keys.current.valid_until is not None:
        raise SealKeyUnusable(f"{listed} says that key {keys.current.key_id} has ended: another must seal")
    return keys


def _made_once(folder: Path, *, dev: bool) -> Ed25519PrivateKey:
    if not dev:
        raise SealKeyMissing(SealKeyMissing.__doc__)
    path = folder / "seal.pem"
    if not path.exists():
        make_key(path)
    key = load_private_key(path)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_name(PUBLIC).write_bytes(pem)
    return key


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 key in PEM.

    Raises:
        SealKeyMissing.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise SealKeyMissing(f"AETHERIS_SEAL_KEY: {path} holds no readable private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SealKeyMissing(f"AETHERIS_SEAL_KEY: {path} holds no Ed25519 key")
    return key


def _listed(path: Path) -> list[TrustedKey]:
    if not path.exists():
        return []
    try:
        return read_keys(path.read_bytes())
    except (OSError, BadKeys) as error:
        raise SealKeyUnusable(f"AETHERIS_SEAL_KEYS: {path}: {error}") from None
