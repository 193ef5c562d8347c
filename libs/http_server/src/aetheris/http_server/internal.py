"""How the gateway shows the verifier that it asks, and for which tenant: it signs that with a key they share.

What is signed holds for one path and one tenant, for a minute. On the wire: `Authorization: Aetheris CLAIMS.SIGNATURE`,
both in base64url; claims are JSON, {"tenant", "path", "until"}, `until` in seconds since the epoch; the signature is
HMAC-SHA-256.
"""

import base64
import hashlib
import hmac
import json
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.keys.key_file import write_once

_SCHEME = "Aetheris"
_DOMAIN = b"aetheris internal 1\0"
_LASTS_S = 60
_SKEW_S = 30
"""By which the clocks of two machines may differ."""
_KEY_BYTES = 32


class InternalKeyMissing(StartRefused):
    """No key is shared with the other service: set AETHERIS_INTERNAL_KEY to a file with 32 random bytes in hex."""

    code = "internal_key_missing"


class NotInternal(Exception):
    """What was sent does not show that one of our services asks this."""

    def __init__(self) -> None:
        super().__init__("only the gateway may ask this")


class InternalKey:
    """The key that gateway and verifier share."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, path: Path | None, data: Path, *, dev: bool) -> "InternalKey":
        """The key of `path`, else the one of the data folder, which is made there in dev.

        Raises:
            InternalKeyMissing.
        """
        if path is None:
            path = kept_in(data)
            if dev:
                make(path)
        try:
            key = bytes.fromhex(path.read_text().strip())
        except (OSError, ValueError):
            raise InternalKeyMissing(f"AETHERIS_INTERNAL_KEY: {path} is no readable file of hex") from None
        if len(key) < _KEY_BYTES:
            raise InternalKeyMissing(f"AETHERIS_INTERNAL_KEY: {path} holds fewer than {_KEY_BYTES} bytes")
        return cls(key)

    def authorization(self, tenant: str, path: str, now: datetime) -> str:
        """The header that lets `path` be asked for a tenant."""
        claims = {"tenant": tenant, "path": path, "until": int(now.timestamp()) + _LASTS_S}
        text = _base64(json.dumps(claims).encode())
        return f"{_SCHEME} {text}.{_base64(self._signature(text))}"

    def tenant(self, authorization: str | None, path: str, now: datetime) -> str:
        """Whom it is asked for.

        Raises:
            NotInternal: the header isn't ours, is of another path, or its time is not now.
        """
        scheme, _, word = (authorization or "").partition(" ")
        text, _, signature = word.partition(".")
        if scheme != _SCHEME or not hmac.compare_digest(_base64(self._signature(text)).encode(), signature.encode()):
            raise NotInternal
        claims: dict[str, Any] = json.loads(_bytes(text))
        left_s = claims["until"] - now.timestamp()
        if claims["path"] != path or not -_SKEW_S < left_s < _LASTS_S + _SKEW_S:
            raise NotInternal
        return str(claims["tenant"])

    def _signature(self, text: str) -> bytes:
        return hmac.digest(self._key, _DOMAIN + text.encode(), hashlib.sha256)


def kept_in(data: Path) -> Path:
    """Where the key lies that nobody set."""
    return data / "keys" / "internal.key"


def make(path: Path) -> None:
    """A fresh key, where there is none."""
    if not path.exists():
        write_once(path, secrets.token_hex(_KEY_BYTES).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
