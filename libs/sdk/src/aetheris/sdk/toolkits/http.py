"""HTTP for tools: one request, never repeated, and what its answer says of the effect (docs/tools.md).

    no connection (refused, DNS, TLS, proxy)     NotExecuted: nothing was sent
    2xx                                          the response
    401, 421, 425, 429                           NotExecuted: refused, and may be accepted later
    400, 402, 403, 404, 405, 406, 410, 411, …    Failed: refused for what it is
    3xx, 408, 409, 412, 423, 424, 5xx            UnclearResponse: in doubt
    no answer, or half of one                    httpx's own error: in doubt

409, 412 and their like are no proof: a proxy between may have repeated the request, and the answer be about the
state that its first copy left. For the same reason a DELETE's 404 and 410 are unclear.
"""

import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import Failed, NotExecuted

CONNECT_WITHIN_S = 5.0
LONGEST_WAIT_S = 300.0

# Raised before the first byte of the request is written.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


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
    transport: httpx.AsyncBaseTransport | None = None,
    **request: Any,
) -> httpx.Response:
    """Send one request, with the external key as Idempotency-Key; gives a 2xx response, read to its end.

    Args:
        refusals: which statuses say that nothing happened; see the table above.
        request: json, data, content, params, auth… as httpx takes them.

    Raises:
        NotExecuted: nothing was sent, or the server refused it for now.
        Failed: the server refused it for what it is.
        UnclearResponse: any other status.
        httpx.HTTPError: something was sent, and no whole answer came.
    """
    sent = {"Idempotency-Key": ctx.external_key, **_trace(ctx.traceparent), **(headers or {})}
    client = _client(ctx.remaining(), transport)
    try:
        async with client:
            response = await client.request(method, url, headers=sent, **request)
    except _NOT_SENT as error:
        raise NotExecuted(f"nothing was sent: {type(error).__name__}") from None
    return _judged(response, refusals or (DELETE_REFUSALS if method.upper() == "DELETE" else REFUSALS))


async def read(
    ctx: ToolContext | ProbeContext,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    **request: Any,
) -> Any:
    """The JSON of a GET, for pure tools and probes.

    Raises:
        UnclearResponse: any status but 2xx.
        httpx.HTTPError: no whole answer came.
        ValueError: the answer is not JSON.
    """
    async with _client(ctx.remaining(), transport) as client:
        response = await client.get(url, headers={**_trace(ctx.traceparent), **(headers or {})}, **request)
    if not response.is_success:
        raise UnclearResponse(response.status_code)
    return response.json()


def _client(remaining_s: float, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """A client for one request: no pool, so no request lands on a connection that the server is closing."""
    wait_s = LONGEST_WAIT_S if math.isinf(remaining_s) else max(remaining_s, 0.001)
    timeout = httpx.Timeout(wait_s, connect=min(CONNECT_WITHIN_S, wait_s))
    return httpx.AsyncClient(verify=_tls(), timeout=timeout, follow_redirects=False, transport=transport)


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
