"""A sealing key in a HashiCorp Vault, whose transit engine signs and doesn't give it out; needs the extra `vault`.

GET /v1/MOUNT/keys/NAME has the public keys, POST /v1/MOUNT/sign/NAME signs (Vault's HTTP API, "Transit").
"""

import base64
import binascii
import time
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.runtime.keys.vault import VaultAway, VaultTransit, VaultUnusable, VaultUri, object_in
from aetheris.verifier.token_key import KeyAway, TokenKeyUnusable

_TRIAL = b"aetheris: which key signs here?"


class VaultKey:
    """An Ed25519 key of a Vault, in the version that was its newest at the start. Calls wait: give them a thread.

    Raises:
        TokenKeyUnusable: the Vault, the token or the key isn't what the URI says, or it can't be asked.
    """

    def __init__(self, uri: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        try:
            named = VaultUri.parse(uri)
            self._name = named.name
            self._vault = VaultTransit(named, monotonic)
            self._version, self._public = _newest(named.name, self._vault.asked("GET", "keys", None))
            self._signature(_TRIAL)
        except (VaultUnusable, VaultAway) as why:
            raise TokenKeyUnusable(str(why)) from None

    def public_key(self) -> Ed25519PublicKey:
        """What checks its signatures."""
        return self._public

    def sign(self, data: bytes, /) -> bytes:
        """A signature of 64 bytes, checked.

        Raises:
            KeyAway: the Vault does not sign, or with another key than at the start.
        """
        try:
            return self._vault.done(lambda: self._signature(data))
        except VaultAway as away:
            raise KeyAway(str(away)) from None

    def _signature(self, data: bytes) -> bytes:
        given = {"input": base64.b64encode(data).decode(), "key_version": self._version}
        signature = _signature_in(self._vault.asked("POST", "sign", given), self._version)
        try:
            self._public.verify(signature, data)
        except InvalidSignature:
            raise VaultAway(f"vault: the key {self._name!r} is another one now") from None
        return signature


def _newest(name: str, data: Mapping[str, Any]) -> tuple[int, Ed25519PublicKey]:
    """Raises: VaultAway."""
    if data.get("type") != "ed25519" or data.get("derived") is True:
        raise VaultAway(f"vault: the key {name!r} is none of type ed25519 that is not derived")
    try:
        version = int(data["latest_version"])
        raw = base64.b64decode(str(object_in(object_in(data["keys"])[str(version)])["public_key"]), validate=True)
        return version, Ed25519PublicKey.from_public_bytes(raw)
    except (KeyError, ValueError, TypeError):
        raise VaultAway(f"vault: it shows no public key of {name!r}") from None


def _signature_in(data: Mapping[str, Any], version: int) -> bytes:
    """Raises: VaultAway."""
    scheme, _, encoded = str(data.get("signature", "")).rpartition(":")
    try:
        signature = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if scheme != f"vault:v{version}" or len(signature) != 64:
        raise VaultAway("vault: what it says is no signature by the key's version of the start")
    return signature
