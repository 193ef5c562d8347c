"""HTTP for tools: one request, never repeated, and what its answer says of the effect (docs/tools.md).

    no connection (refused, DNS, TLS, proxy)     NotExecuted: nothing was sent
    2xx                                          the response
    401, 421, 425, 429                           NotExecuted: refused, and may be accepted later
    400, 402, 403, 404, 405, 406, 410, 411, …    Failed: refused for what it is
    3xx, 408, 409, 412, 423, 424, 5xx            UnclearResponse: in doubt
    no answer, or half of one                    httpx's own error: in doubt
    2xx, and more than may be read               BodyTooLarge: in doubt
    not sent, because the guard forbids it       Failed

409, 412 and their like are no proof: a proxy between may have repeated the request, and the answer be about the
state that its first copy left. For the same reason a DELETE's 404 and 410 are unclear.

Unless a tool brings its own transport or guard, only public addresses are asked.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast
from urllib.parse import quote

import httpx

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import Confirmed, Drifted, Failed, NotExecuted, StateChange, Verdict
from aetheris.sdk.toolkits.guard import BodyTooLarge, Guard, GuardedTransport

CONNECT_WITHIN_S = 5.0
LONGEST_WAIT_S = 300.0
PUBLIC = Guard()
"""Any host whose addresses are public."""

__all__ = ["BodyTooLarge", "Guard", "Refusals", "UnclearResponse", "below", "call", "confirm", "direct", "read"]

# Raised before the first byte of the request is written.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class UnclearResponse(Exception):
    """An answer that doesn't say whether the request took effect."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@dataclass(frozen=True)
class Refusals:
    """The statuses by which a server says that nothing happened."""

    retryable: frozenset[int] = frozenset({401, 421, 425, 429})
    permanent: frozenset[int] = frozenset(
        {400, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 416, 417, 422, 426, 428, 431, 451}
    )

    def but(self, *unclear: int) -> "Refusals":
        """Without these: a server that doesn't mean it that way."""
        return replace(self, retryable=self.retryable - {*unclear}, permanent=self.permanent - {*unclear})


REFUSALS = Refusals()
DELETE_REFUSALS = REFUSALS.but(404, 410)


async def call(
    ctx: ToolContext,
    method: str,
    url: str,
    *,
    refusals: Refusals | None = None,
    headers: Mapping[str, str] | None = None,
    guard: Guard = PUBLIC,
    transport: httpx.AsyncBaseTransport | None = None,
    **request: Any,
) -> httpx.Response:
    """Send one request, with the external key as Idempotency-Key; gives a 2xx response, read to its end.

    Args:
        refusals: which statuses say that nothing happened; see the table above.
        guard: where it may go, and how much is read.
        transport: the tool's own, for a host that it alone names: the guard then only bounds what is read.
        request: json, data, content, params, auth… as httpx takes them.

    Raises:
        NotExecuted: nothing was sent, or the server refused it for now.
        Failed: the server refused it for what it is, or the guard did.
        UnclearResponse: any other status.
        BodyTooLarge: a 2xx, with more than the guard lets be read.
        httpx.HTTPError: something was sent, and no whole answer came.
    """
    sent = {"Idempotency-Key": ctx.external_key, **_trace(ctx.traceparent), **(headers or {})}
    wait_s = _wait_s(ctx.remaining())
    client = _client(wait_s, guard, transport)
    try:
        async with client, asyncio.timeout(wait_s):
            response = await _sent(
                client, client.build_request(method, url, headers=sent, **_built(request)), guard, request
            )
    except _NOT_SENT as error:
        raise NotExecuted(f"nothing was sent: {type(error).__name__}") from None
    return _judged(response, refusals or (DELETE_REFUSALS if method.upper() == "DELETE" else REFUSALS))


async def read(
    ctx: ToolContext | ProbeContext,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    guard: Guard = PUBLIC,
    transport: httpx.AsyncBaseTransport | None = None,
    **request: Any,
) -> Any:
    """The JSON of a GET, for pure tools and probes; redirects are followed within the origin.

    Raises:
        UnclearResponse: any status but 2xx.
        Failed: the guard forbids it. BodyTooLarge: it is more than the guard lets be read.
        httpx.HTTPError: no whole answer came.
        ValueError: the answer is not JSON.
    """
    response = await get(ctx, url, headers=headers, guard=guard, transport=transport, **request)
    if not response.is_success:
        raise UnclearResponse(response.status_code)
    return response.json()


async def get(
    ctx: ToolContext | ProbeContext,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    guard: Guard = PUBLIC,
    transport: httpx.AsyncBaseTransport | None = None,
    **request: Any,
) -> httpx.Response:
    """The answer to a GET, whatever its status; raises as `read`."""
    wait_s = _wait_s(ctx.remaining())
    asked = {**_trace(ctx.traceparent), **(headers or {})}
    async with _client(wait_s, guard, transport) as client, asyncio.timeout(wait_s):
        response = await _sent(
            client, client.build_request("GET", url, headers=asked, **_built(request)), guard, request
        )
        for _ in range(guard.redirects):
            following = response.next_request
            if following is None or _origin(following.url) != _origin(response.url):
                break
            response = await _sent(client, following, guard, request)
    return response


async def confirm(
    ctx: ProbeContext,
    url: str,
    change: StateChange,
    *,
    fields: Mapping[str, Any] | None = None,
    guard: Guard = PUBLIC,
    **request: Any,
) -> Verdict:
    """Whether a resource is as a call left it: there (or gone, for a delete), its ETag, its JSON's `fields`.

    Args:
        url: made by the tool from its own host and the change's resource_id (see `below`), never a recorded URL.
        request: as `read` takes it.

    Raises:
        As `read`; the verifier takes it as unknown.
    """
    response = await get(ctx, url, guard=guard, **request)
    gone = response.status_code in (404, 410)
    if not gone and not response.is_success:
        raise UnclearResponse(response.status_code)
    if gone or change.operation == "delete":
        as_left = gone and change.operation == "delete"
        status = f"HTTP {response.status_code}"
        return Confirmed((status,)) if as_left else Drifted({"status": response.status_code})
    found: dict[str, Any] = {}
    etag = response.headers.get("etag")
    if change.etag is not None and etag != change.etag:
        found["etag"] = {"recorded": change.etag, "found": etag}
    shown: Any = response.json() if fields else {}
    held = cast("dict[str, Any]", shown) if isinstance(shown, dict) else {}
    for name, wanted in (fields or {}).items():
        if held.get(name) != wanted:
            found[name] = {"recorded": wanted, "found": held.get(name)}
    return Drifted(found) if found else Confirmed((f"HTTP {response.status_code}",))


def below(base: str, *names: str) -> str:
    """A URL below a tool's own: each name is one segment, whatever it contains.

    Raises:
        Failed: a name that leads elsewhere.
    """
    if any(name in ("", ".", "..") for name in names):
        raise Failed("refused: no such resource can be named")
    return "/".join((base.rstrip("/"), *(quote(name, safe="") for name in names)))


def _client(wait_s: float, guard: Guard, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """A client for one request: no pool, so no request lands on a connection that the server is closing."""
    timeout = httpx.Timeout(wait_s, connect=min(CONNECT_WITHIN_S, wait_s))
    used = transport or GuardedTransport(guard, direct())
    return httpx.AsyncClient(verify=_tls(), timeout=timeout, follow_redirects=False, transport=used)


def _wait_s(remaining_s: float) -> float:
    return LONGEST_WAIT_S if math.isinf(remaining_s) else max(remaining_s, 0.001)


def _built(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != "auth"}


async def _sent(
    client: httpx.AsyncClient, request: httpx.Request, guard: Guard, given: Mapping[str, Any]
) -> httpx.Response:
    """One request and its answer, read as far as the guard lets; of what is no 2xx only the status counts."""
    response = await client.send(request, stream=True, auth=given.get("auth"))
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > guard.largest:
                if response.is_success:
                    raise BodyTooLarge(f"HTTP {response.status_code}, more than {guard.largest} bytes")
                break
    finally:
        await response.aclose()
    kept = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
    whole = httpx.Response(
        response.status_code, headers=kept, content=bytes(body[: guard.largest]), request=response.request
    )
    whole.next_request = response.next_request
    return whole


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@cache
def _tls() -> ssl.SSLContext:
    """Read once: the certificates take longer to load than most calls take."""
    return httpx.create_ssl_context()


def direct() -> httpx.AsyncBaseTransport:
    """A transport past any proxy that the environment names."""
    return httpx.AsyncHTTPTransport(verify=_tls(), retries=0)


def _trace(traceparent: str | None) -> dict[str, str]:
    return {"traceparent": traceparent} if traceparent else {}


def _judged(response: httpx.Response, refusals: Refusals) -> httpx.Response:
    status = response.status_code
    if response.is_success:
        return response
    if status in refusals.retryable:
        raise NotExecuted(f"HTTP {status}")
    if status in refusals.permanent:
        raise Failed(f"HTTP {status}")
    raise UnclearResponse(status)
