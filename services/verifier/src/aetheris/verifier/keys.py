"""The keys that seal, and that of the log of seals: Ed25519 (docs/evidence.md).

The one that seals lies in a file, a token, or a Vault; the log's in a file.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aetheris.proofs.log_lines import sign_line
from aetheris.proofs.notes import sign_checkpoint
from aetheris.proofs.seals import SigningKey, sign
from aetheris.proofs.trust import LOG, SEAL, BadKeys, TrustedKey, read_keys, write_keys
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.keys.files import make_key
from aetheris.runtime.keys.signing import LoadedKey
from aetheris.runtime.keys.vault import SCHEMES
from aetheris.verifier.token_key import KeyUri, TokenKey
from aetheris.verifier.vault_key import VaultKey

LISTED = "seal-keys.json"
PUBLIC = "seal.pub"


class SealKeyMissing(StartRefused):
    """No key to seal with: set AETHERIS_SEAL_KEY to a PEM file with an Ed25519 key, or AETHERIS_SEAL_KEY_URI."""

    code = "seal_key_missing"


class LogKeyMissing(StartRefused):
    """No key for the log of seals: set AETHERIS_SEAL_LOG_KEY to a PEM file with an Ed25519 key of its own."""

    code = "log_key_missing"


class SealKeyUnusable(StartRefused):
    """The list of public keys (AETHERIS_SEAL_KEYS) can't be read, or forbids a key that signs; or one key does both."""

    code = "seal_key_unusable"


class SealKeys:
    """The keys that sign now, seals and the log of them, and every key whose word counts: these, and those before."""

    def __init__(self, private_key: SigningKey, log_key: SigningKey, listed: Sequence[TrustedKey] = ()) -> None:
        is_here = isinstance(private_key, Ed25519PrivateKey)
        self._private_key, self._log_key = LoadedKey(private_key) if is_here else private_key, log_key
        seal, log = TrustedKey(private_key.public_key(), use=SEAL), TrustedKey(log_key.public_key(), use=LOG)
        known = {seal.key_id: seal, log.key_id: log} | {key.key_id: key for key in listed}
        self.current, self.log = known[seal.key_id], known[log.key_id]
        self.trusted = tuple(known.values())

    @property
    def is_elsewhere(self) -> bool:
        """Whether signing waits for somebody else: it belongs into a thread, and may raise KeyAway."""
        return isinstance(self._private_key, TokenKey | VaultKey)

    def sign(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The payload with its key_id and signature."""
        return sign(payload, self._private_key)

    def sign_line(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """A line of the log of seals that is no seal, with its key_id and signature."""
        return sign_line(payload, self._private_key)

    def sign_envelope(self, message: bytes) -> Mapping[str, str]:
        """A signature as an envelope has it."""
        signature = base64.b64encode(self._private_key.sign(message)).decode()
        return {"keyid": self.current.key_id, "sig": signature}

    def sign_checkpoint(self, origin: str, size: int, root: bytes) -> str:
        """A checkpoint of the log of seals."""
        return sign_checkpoint(origin, size, root, self._log_key)


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
        return VaultKey(uri)
    if uri is not None:
        return TokenKey(KeyUri.parse(uri))
    if path is None and not dev:
        raise SealKeyMissing(SealKeyMissing.__doc__)
    return load_private_key(path or _made_once(data / "keys" / "seal.pem"))


def log_key(path: Path | None, data: Path, *, dev: bool) -> SigningKey:
    """The key that signs checkpoints of the log of seals; in dev, one of the data folder, made once.

    Raises:
        LogKeyMissing: none is named, or the file holds no Ed25519 key.
    """
    if path is None and not dev:
        raise LogKeyMissing(LogKeyMissing.__doc__)
    try:
        return _ed25519(path or _made_once(data / "keys" / "log.pem"))
    except ValueError as error:
        raise LogKeyMissing(f"AETHERIS_SEAL_LOG_KEY: {error}") from None


def seal_keys(own: SigningKey, log: SigningKey, listed: Path) -> SealKeys:
    """The keys that sign, among the public keys listed.

    Raises:
        SealKeyUnusable: the list can't be read, says that one of them no longer signs, or that it signs something else.
    """
    keys = SealKeys(own, log, _listed(listed))
    if keys.current.key_id == keys.log.key_id:
        raise SealKeyUnusable("AETHERIS_SEAL_LOG_KEY is the key that seals: the log of seals needs one of its own")
    for key, use in ((keys.current, SEAL), (keys.log, LOG)):
        if key.revoked_at is not None or key.valid_until is not None or key.use not in ("", use):
            raise SealKeyUnusable(f"{listed} says that key {key.key_id} has ended, or signs something else")
    return keys


def publish(keys: SealKeys, folder: Path) -> None:
    """The public keys as a file of the folder, for who checks what they sign."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / PUBLIC, write_keys(keys.trusted).encode())


def _made_once(path: Path) -> Path:
    if not path.exists():
        make_key(path)
    return path


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The key that seals, of a file in PEM.

    Raises:
        SealKeyMissing.
    """
    try:
        return _ed25519(path)
    except ValueError as error:
        raise SealKeyMissing(f"AETHERIS_SEAL_KEY: {error}") from None


def _ed25519(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise ValueError(f"{path} holds no readable private key") from None
    if isinstance(key, Ed25519PrivateKey):
        return key
    raise ValueError(f"{path} holds no Ed25519 key")


def _listed(path: Path) -> list[TrustedKey]:
    if not path.exists():
        return []
    try:
        return read_keys(path.read_bytes())
    except (OSError, BadKeys) as error:
        raise SealKeyUnusable(f"AETHERIS_SEAL_KEYS: {path}: {error}") from None
