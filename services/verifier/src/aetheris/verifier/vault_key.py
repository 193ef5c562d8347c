"""A sealing key in a HashiCorp Vault, whose transit engine signs and doesn't give it out; needs the extra `vault`.

GET /v1/MOUNT/keys/NAME has the public keys, POST /v1/MOUNT/sign/NAME signs (Vault's HTTP API, "Transit").
"""

import base64
import binascii
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aetheris.verifier.token_key import KeyAway, TokenKeyUnusable

if TYPE_CHECKING:
    import httpx

SCHEMES = ("vault+https:", "vault+http:")
_QUERY = frozenset({"token-source", "ca", "namespace"})
_TRIAL = b"aetheris: which key signs here?"
ANSWERS_WITHIN_S = 3.0
"""For a connection, and for each wait for more of an answer. After twice that a call's connection is shut, whatever
has come by then."""
AWAY_S = 1.0
"""So long a Vault that has failed isn't asked again, and then by one call at a time."""
_LARGEST_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class VaultUri:
    """Where a key is: the Vault's address, the engine's mount, the key's name, and the file with a token for it."""

    address: str
    mount: str
    name: str
    token_source: Path
    ca: Path | None = None
    namespace: str | None = None

    @classmethod
    def parse(cls, uri: str) -> "VaultUri":
        """Read a URI.

        Raises:
            TokenKeyUnusable: a part is missing, there twice, or none that is read here; a token is never shown.
        """
        try:
            parts = urlsplit(uri.removeprefix("vault+"))
            host, port = parts.hostname, parts.port
            given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
        except ValueError:
            raise TokenKeyUnusable("the vault+https: URI can't be read") from None
        query = dict(given)
        if strange := sorted({name for name, _ in given if name not in _QUERY}) or len(query) < len(given):
            raise TokenKeyUnusable(f"the vault+https: URI has a part twice, or one that is not read here: {strange}")
        *mount, name = [unquote(one) for one in parts.path.strip("/").split("/")]
        if not host or not mount or not all((*mount, name)) or parts.username or parts.fragment:
            raise TokenKeyUnusable(
                "the vault+https: URI is not vault+https://HOST[:PORT]/MOUNT/KEY?token-source=file:…"
            )
        if not query.get("token-source"):
            raise TokenKeyUnusable("the vault+https: URI says no token-source")
        if parts.scheme != "https" and not _is_loopback(host):
            raise TokenKeyUnusable("the vault+http: URI names another machine, which would read the token: use https")
        ca = query.get("ca", "").removeprefix("file:")
        return cls(
            f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port or 8200}",
            "/".join(mount),
            name,
            Path(query["token-source"].removeprefix("file:")),
            Path(ca) if ca else None,
            query.get("namespace") or None,
        )

    def token(self) -> str:
        """Read anew for each call: whoever renews it replaces the file.

        Raises: KeyAway.
        """
        try:
            token = self.token_source.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise KeyAway(f"token-source: {self.token_source} can't be read") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise KeyAway(f"token-source: {self.token_source} holds no token")
        return token


class VaultKey:
    """An Ed25519 key of a Vault, in the version that was its newest at the start. Calls wait: give them a thread.

    Raises:
        TokenKeyUnusable: the Vault, the token or the key isn't what the URI says, or it can't be asked.
    """

    def __init__(self, uri: VaultUri, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._uri = uri
        self._monotonic = monotonic
        self._client = _client(uri)
        self._retrying = threading.Lock()
        self._away_until_s: float | None = None
        try:
            self._version, self._public = _newest(uri.name, self._asked("GET", "keys", None))
            self.sign(_TRIAL)
        except KeyAway as why:
            raise TokenKeyUnusable(str(why)) from None

    def public_key(self) -> Ed25519PublicKey:
        """What checks its signatures."""
        return self._public

    def sign(self, data: bytes, /) -> bytes:
        """A signature of 64 bytes, checked.

        Raises:
            KeyAway: the Vault does not sign, or with another key than at the start.
        """
        if self._away_until_s is None:
            return self._signature(data)
        # one call at a time finds out whether it is back: threads that wait for it would be missing to others
        if self._monotonic() < self._away_until_s or not self._retrying.acquire(blocking=False):
            raise KeyAway("vault: it did not sign a moment ago")
        try:
            return self._signature(data)
        finally:
            self._retrying.release()

    def _signature(self, data: bytes) -> bytes:
        try:
            given = {"input": base64.b64encode(data).decode(), "key_version": self._version}
            signature = _signature_in(self._asked("POST", "sign", given), self._version)
        except KeyAway:
            self._away_until_s = self._monotonic() + AWAY_S
            raise
        try:
            self._public.verify(signature, data)
        except InvalidSignature:
            self._away_until_s = self._monotonic() + AWAY_S
            raise KeyAway(f"vault: the key {self._uri.name!r} is another one now") from None
        self._away_until_s = None
        return signature

    def _asked(self, method: str, what: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The data of an answer; its words are in no message.

        Raises: KeyAway.
        """
        import httpx  # noqa: PLC0415  an extra

        uri = self._uri
        headers = {"X-Vault-Token": uri.token(), "X-Vault-Request": "true"}
        if uri.namespace is not None:
            headers["X-Vault-Namespace"] = uri.namespace
        found = bytearray()
        try:
            path = f"/v1/{quote(uri.mount)}/{what}/{quote(uri.name, safe='')}"
            with (
                _Deadline(2 * ANSWERS_WITHIN_S) as deadline,
                self._client.stream(
                    method, path, json=body, headers=headers, extensions={"trace": deadline.hears}
                ) as answer,
            ):
                for piece in answer.iter_bytes():
                    found += piece
                    if len(found) > _LARGEST_ANSWER:
                        raise KeyAway("vault: its answer has no end")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise KeyAway(f"vault: it can't be asked: {type(error).__name__}") from None
        if answer.status_code != 200:
            raise KeyAway(f"vault: HTTP {answer.status_code} of {what}/{uri.name}")
        try:
            return _object(_object(json.loads(found))["data"])
        except (ValueError, KeyError, RecursionError):
            raise KeyAway("vault: its answer can't be read") from None


class _Deadline:
    """Shuts a call's connection when its time is over: in TLS, in the headers and in the body alike."""

    def __init__(self, within_s: float) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def hears(self, event: str, info: Mapping[str, Any]) -> None:
        """Learns of the connection, by the client's `trace` extension."""
        if event != "connection.connect_tcp.complete":
            return
        with self._lock:
            self._socket = info["return_value"].get_extra_info("socket").dup()  # TLS takes the other one over
        if self._is_over:
            self._shut()

    def _shut(self) -> None:
        self._is_over = True
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


def _client(uri: VaultUri) -> "httpx.Client":
    """Raises: TokenKeyUnusable."""
    try:
        import httpx  # noqa: PLC0415  an extra
    except ImportError:
        raise TokenKeyUnusable("a vault+https: URI needs the extra aetheris-verifier[vault]") from None
    import ssl  # noqa: PLC0415

    try:
        tls = ssl.create_default_context(cafile=uri.ca)
    except (OSError, ssl.SSLError):
        raise TokenKeyUnusable(f"ca: {uri.ca} can't be read") from None
    # past any proxy, and never redirected: a token goes to the address that the URI names, and nowhere else
    # a connection for each call: what a call's deadline shuts is no other's
    alone = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=uri.address, timeout=ANSWERS_WITHIN_S, verify=tls, trust_env=False, limits=alone)


def _newest(name: str, data: Mapping[str, Any]) -> tuple[int, Ed25519PublicKey]:
    """Raises: KeyAway."""
    if data.get("type") != "ed25519" or data.get("derived") is True:
        raise KeyAway(f"vault: the key {name!r} is none of type ed25519 that is not derived")
    try:
        version = int(data["latest_version"])
        raw = base64.b64decode(str(_object(_object(data["keys"])[str(version)])["public_key"]), validate=True)
        return version, Ed25519PublicKey.from_public_bytes(raw)
    except (KeyError, ValueError, TypeError):
        raise KeyAway(f"vault: it shows no public key of {name!r}") from None


def _signature_in(data: Mapping[str, Any], version: int) -> bytes:
    """Raises: KeyAway."""
    scheme, _, encoded = str(data.get("signature", "")).rpartition(":")
    try:
        signature = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if scheme != f"vault:v{version}" or len(signature) != 64:
        raise KeyAway("vault: what it says is no signature by the key's version of the start")
    return signature


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004  as what is no JSON
    return cast("Mapping[str, Any]", value)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
