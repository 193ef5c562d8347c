"""A key in a HashiCorp Vault, whose transit engine works with it and doesn't give it out; needs httpx.

Calls go to /v1/MOUNT/OPERATION/NAME (Vault's HTTP API, "Transit").
"""

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

SCHEMES = ("vault+https:", "vault+http:")
ANSWERS_WITHIN_S = 3.0
"""For a connection, and for each wait for more of an answer. After twice that a call's connection is shut, whatever
has come by then."""
AWAY_S = 1.0
"""So long a Vault that has failed isn't asked again, and then by one call at a time."""
_QUERY = frozenset({"token-source", "ca", "namespace"})
_LARGEST_ANSWER = 1024 * 1024


class VaultUnusable(ValueError):
    """What a vault+https: URI names can't be used: the message says which part of it, and shows no token."""


class VaultAway(Exception):
    """The Vault does not do it at the moment; it is asked again. `status` of its answer, where there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


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
            VaultUnusable: a part is missing, there twice, or none that is read here; a token is never shown.
        """
        try:
            parts = urlsplit(uri.removeprefix("vault+"))
            host, port = parts.hostname, parts.port
            given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
        except ValueError:
            raise VaultUnusable("the vault+https: URI can't be read") from None
        query = dict(given)
        if strange := sorted({name for name, _ in given if name not in _QUERY}) or len(query) < len(given):
            raise VaultUnusable(f"the vault+https: URI has a part twice, or one that is not read here: {strange}")
        *mount, name = [unquote(one) for one in parts.path.strip("/").split("/")]
        if not host or not mount or not all((*mount, name)) or parts.username or parts.fragment:
            raise VaultUnusable("the vault+https: URI is not vault+https://HOST[:PORT]/MOUNT/KEY?token-source=file:…")
        if not query.get("token-source"):
            raise VaultUnusable("the vault+https: URI says no token-source")
        if parts.scheme != "https" and not _is_loopback(host):
            raise VaultUnusable("the vault+http: URI names another machine, which would read the token: use https")
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

        Raises: VaultAway.
        """
        try:
            token = self.token_source.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise VaultAway(f"token-source: {self.token_source} can't be read") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise VaultAway(f"token-source: {self.token_source} holds no token")
        return token


class VaultTransit:
    """One key of a Vault. Calls wait: give them a thread.

    Raises:
        VaultUnusable: there is no httpx, or the file of `ca` is none.
    """

    def __init__(self, uri: VaultUri, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._uri = uri
        self._monotonic = monotonic
        self._client = _client(uri)
        self._retrying = threading.Lock()
        self._away_until_s: float | None = None

    def done(self, work: Callable[[], T]) -> T:
        """What some calls come to; while they fail, they are tried now and then, by one thread at a time.

        Raises:
            VaultAway: `work` did, or would be too soon.
        """
        if self._away_until_s is None:
            return self._watched(work)
        # one call at a time finds out whether it is back: threads that wait for it would be missing to others
        if self._monotonic() < self._away_until_s or not self._retrying.acquire(blocking=False):
            raise VaultAway("vault: it failed a moment ago")
        try:
            return self._watched(work)
        finally:
            self._retrying.release()

    def _watched(self, work: Callable[[], T]) -> T:
        try:
            found = work()
        except VaultAway:
            self._away_until_s = self._monotonic() + AWAY_S
            raise
        self._away_until_s = None
        return found

    def asked(self, method: str, what: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The data of an answer about the key; its words are in no message.

        Raises:
            VaultAway.
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
                        raise VaultAway("vault: its answer has no end")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise VaultAway(f"vault: it can't be asked: {type(error).__name__}") from None
        if answer.status_code != 200:
            raise VaultAway(f"vault: HTTP {answer.status_code} of {what}/{uri.name}", answer.status_code)
        try:
            return object_in(object_in(json.loads(found))["data"])
        except (ValueError, KeyError, RecursionError):
            raise VaultAway("vault: its answer can't be read") from None


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
    """Raises: VaultUnusable."""
    try:
        import httpx  # noqa: PLC0415  an extra
    except ImportError:
        raise VaultUnusable("a vault+https: URI needs httpx: the extra aetheris-runtime[vault]") from None
    import ssl  # noqa: PLC0415

    try:
        tls = ssl.create_default_context(cafile=uri.ca)
    except (OSError, ssl.SSLError):
        raise VaultUnusable(f"ca: {uri.ca} can't be read") from None
    # past any proxy, and never redirected: a token goes to the address that the URI names, and nowhere else
    # a connection for each call: what a call's deadline shuts is no other's
    alone = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=uri.address, timeout=ANSWERS_WITHIN_S, verify=tls, trust_env=False, limits=alone)


def object_in(value: Any) -> Mapping[str, Any]:
    """The value, which is an object; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004  as what is no JSON
    return cast("Mapping[str, Any]", value)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
