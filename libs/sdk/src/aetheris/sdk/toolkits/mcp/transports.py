"""How an MCP server is reached: the official SDK's streams to its process, or to its streamable HTTP endpoint."""

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import httpx2
from mcp import StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from aetheris.sdk.isolation.programs import argv_of
from aetheris.sdk.toolkits.mcp.servers import McpServer, SecretName, Setting

CONNECT_WITHIN_S = 10.0
_ON_THE_WIRE = 8
"""Bytes that an answer may have for each that is recorded of it: escapes, and all that is said twice."""
_BESIDE_BYTES = 1024 * 1024
"""And what the protocol says around it, such as a list of tools."""
_REFUSED_FOR_NOW = frozenset({401, 403, 421, 425, 429})
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)

# The SDK logs messages that it can't read, with what is in them.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False

Revealed = Mapping[str, str]
"""name@version → the secret that the server's settings name."""


@asynccontextmanager
async def opened(server: McpServer, revealed: Revealed, nonce: str) -> AsyncGenerator[TransportStreams]:
    """The streams of a new connection; a process that was started for it ends with it.

    Of a message that could not be posted the answer is an error whose data is `marked` with the nonce.

    Raises:
        OSError, ValueError, httpx2.HTTPError: it can't be started or reached.
    """
    async with AsyncExitStack() as closing:
        if server.url is not None:
            http = await closing.enter_async_context(_http(server, revealed, nonce))
            transport = streamable_http_client(server.url, http_client=http)
        else:
            log = closing.enter_context((server.log or Path(os.devnull)).open("a"))
            transport = stdio_client(_process(server, revealed), errlog=log)
        yield await closing.enter_async_context(transport)


def marked(nonce: str, *, sent: bool) -> str:
    """What the data of an error says that no server made."""
    return f"{nonce} {'lost' if sent else 'not sent'}"


def _process(server: McpServer, revealed: Revealed) -> StdioServerParameters:
    env = _settings(server.env, revealed)
    command, *args = argv_of((str(server.command), *server.args), get_default_environment() | env)
    return StdioServerParameters(command=command, args=args, env=env, cwd=server.cwd)


def _http(server: McpServer, revealed: Revealed, nonce: str) -> httpx2.AsyncClient:
    """Past any proxy; a connection for each request, so that none is written to one that is closed already.

    A call's time is bounded by its tool's timeout_s.
    """
    fresh = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))
    return httpx2.AsyncClient(
        headers=_settings(server.headers, revealed),
        timeout=httpx2.Timeout(CONNECT_WITHIN_S, read=None),
        transport=_OneSend(fresh, nonce, _ON_THE_WIRE * server.most_bytes + _BESIDE_BYTES),
        trust_env=False,
    )


def _settings(given: Mapping[str, Setting], revealed: Revealed) -> dict[str, str]:
    return {key: revealed[one.name] if isinstance(one, SecretName) else one for key, one in given.items()}


class _OneSend(httpx2.AsyncBaseTransport):
    """Says of each message that is posted whether it was sent; an error of one message breaks no other's session.

    It answers in the server's place, with a mark that no server knows. An answer with too many bytes breaks off.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, nonce: str, most_bytes: int) -> None:
        self._inner = inner
        self._nonce = nonce
        self._most_bytes = most_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request."""
        if request.method != "POST":
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except _NOT_SENT as error:
            return self._instead(request, f"nothing was sent: {type(error).__name__}", sent=False)
        except httpx2.TransportError as error:
            return self._instead(request, type(error).__name__, sent=True)
        refused = response.status_code in _REFUSED_FOR_NOW
        if not refused and not 300 <= response.status_code < 400:
            response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), self._most_bytes)
            return response
        await response.aclose()
        return self._instead(request, f"HTTP {response.status_code}", sent=not refused)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    def _instead(self, request: httpx2.Request, text: str, *, sent: bool) -> httpx2.Response:
        error = {"code": INTERNAL_ERROR, "message": text, "data": marked(self._nonce, sent=sent)}
        return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class _Bounded(httpx2.AsyncByteStream):
    """An answer as it comes, up to so many bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._inner = inner
        self._left = most_bytes

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx2.ReadError("the answer is too long")
            yield piece

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()
