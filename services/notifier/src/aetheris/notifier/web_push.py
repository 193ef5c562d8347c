"""A message to a browser, as a push service takes it: encrypted for it (RFC 8291), signed by us (RFC 8292)."""

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import http_ece
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from joserfc import jwt
from joserfc.jwk import ECKey

LARGEST = 3993
"""Bytes of a message: one record of RFC 8188, as push services take at least (RFC 8030 §7.2)."""
_SIGNED_FOR_S = 12 * 3600
_POINT, _SECRET = 65, 16


class PushUnusable(ValueError):
    """The subscription or the key is none; the message says which, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    """One POST."""

    url: str
    headers: Mapping[str, str]
    content: bytes


def push_request(
    message: bytes, subscription: str, key: str, *, contact: str, ttl_s: int, topic: str, now_s: int
) -> PushRequest:
    """A message, made ready.

    Args:
        subscription: JSON, as the browser gave it: {endpoint, keys: {p256dh, auth}}.
        key: the application server's private key, PEM, on P-256.
        contact: mailto: or https:, for the push service's operator.
        topic: a later message of it takes the place of one that was not delivered yet; 32 characters of base64url.
        now_s: seconds since 1970.

    Raises:
        PushUnusable: one of them can't be used.
    """
    endpoint, point, secret = _subscribed(subscription)
    if len(message) > LARGEST:
        raise PushUnusable(f"a message of more than {LARGEST} bytes")
    try:
        own = ec.generate_private_key(ec.SECP256R1())
        content: Any = http_ece.encrypt(
            message, salt=os.urandom(16), private_key=own, dh=point, auth_secret=secret, version="aes128gcm"
        )
    except (ValueError, http_ece.ECEException):
        raise PushUnusable("the subscription has no key that can be encrypted for") from None
    headers = {
        "Authorization": _vapid(endpoint, key, contact, now_s),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(ttl_s),
        "Topic": topic,
        "Urgency": "high",
    }
    return PushRequest(endpoint, headers, bytes(content))


def _subscribed(subscription: str) -> tuple[str, bytes, bytes]:
    try:
        found = cast("dict[str, Any]", json.loads(subscription))
        endpoint, keys = found["endpoint"], found["keys"]
        point, secret = _decoded(keys["p256dh"]), _decoded(keys["auth"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise PushUnusable("the subscription is no JSON of endpoint, keys.p256dh and keys.auth") from None
    if not isinstance(endpoint, str) or len(point) != _POINT or len(secret) != _SECRET:
        raise PushUnusable("the subscription is no JSON of endpoint, keys.p256dh and keys.auth")
    return endpoint, point, secret


def _vapid(endpoint: str, key: str, contact: str, now_s: int) -> str:
    try:
        private = load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise PushUnusable("the key is no PEM") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
        raise PushUnusable("the key is not on P-256")
    at = urlsplit(endpoint)
    claims = {"aud": f"{at.scheme}://{at.netloc}", "exp": now_s + _SIGNED_FOR_S, "sub": contact}
    token = jwt.encode({"typ": "JWT", "alg": "ES256"}, claims, ECKey.import_key(key))
    public = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return f"vapid t={token}, k={_encoded(public)}"


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
