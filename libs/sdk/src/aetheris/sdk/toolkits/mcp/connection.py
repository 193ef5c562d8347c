"""One connection to one MCP server: made when it is needed, made anew when it broke; one send for each call.

What an answer of the protocol says of a call's effect:

    the server can't be started or reached        NotExecuted: nothing was sent
    HTTP 401, 403, 421, 425, 429                  NotExecuted: refused, and may be accepted later
    the session has ended (HTTP 404)              NotExecuted: the next try has a new one
    the tool is another than was pinned           Failed: nothing was sent
    no such tool or method, bad arguments         Failed: refused for what it is
    any other error, or none                      raised as it is: in doubt
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from mcp import Client, MCPError
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
)
from mcp_types import Tool as ListedTool
from pydantic import TypeAdapter

from aetheris.sdk import remains
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Failed, NotExecuted
from aetheris.sdk.toolkits.mcp.pins import fingerprint
from aetheris.sdk.toolkits.mcp.servers import McpServer
from aetheris.sdk.toolkits.mcp.transports import Revealed, marked, opened

EXTERNAL_KEY = "io.aetheris/external-key"
"""Where a call carries its external key, in the `_meta` that servers may read."""

MOST_TOOLS = 1_000
_SESSION_ENDED = (INVALID_REQUEST, "Session terminated")  # what the SDK makes of a 404 within a session
_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class McpUnreachable(Exception):
    """The server can't be started, reached or understood; names the class of the error."""


class ConnectionLost(Exception):
    """The server, or the way to it, broke while a call was under way."""


class InputRequired(Exception):
    """The server asks for more before it goes on: nobody is there to answer, and what it did so far isn't known."""


@dataclass(frozen=True)
class _Live:
    """A connection that works, as far as is known, and what its server listed when it was made."""

    client: Client
    listed: Sequence[ListedTool]
    fingerprints: Mapping[str, str]
    lost: asyncio.Event


class McpConnection:
    """A server's connection; any number of calls at a time."""

    def __init__(self, server: McpServer, revealed: Revealed) -> None:
        self._server = server
        self._revealed = revealed
        self._making = asyncio.Lock()
        self._live: _Live | None = None
        self._holding: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._nonce = secrets.token_hex(16)

    async def tools(self) -> Sequence[ListedTool]:
        """What the server lists.

        Raises:
            McpUnreachable.
        """
        return (await self._connected()).listed

    async def call(self, ctx: ToolContext, name: str, pinned: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool once; raises as the table above says."""
        try:
            live = await self._connected()
        except McpUnreachable as error:
            raise NotExecuted(f"the MCP server can't be reached: {error}") from None
        if live.fingerprints.get(name) != pinned:
            raise Failed("the MCP server's tool is another than was pinned: look at it, and `aetheris mcp pin`")
        return await self._sent(live, _request(ctx, name, arguments))

    async def close(self) -> None:
        """End the connection, and a server that was started for it."""
        self._leave.set()
        if self._holding is not None:
            await asyncio.wait({self._holding})

    async def _sent(self, live: _Live, request: CallToolRequest) -> CallToolResult:
        remains.unsure()  # what a server starts may outlive it, and its session serves other calls too
        session = live.client.session
        sending = asyncio.ensure_future(session.send_request(request, _ANSWER))
        losing = asyncio.ensure_future(live.lost.wait())
        try:
            await asyncio.wait({sending, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionLost
            answer = sending.result()
        except MCPError as error:
            raise self._meant(live, error) from None
        finally:
            for task in (sending, losing):
                task.cancel()
            await asyncio.gather(sending, losing, return_exceptions=True)
        if not isinstance(answer, CallToolResult):
            raise InputRequired
        return answer

    def _meant(self, live: _Live, error: MCPError) -> Exception:
        if error.data == marked(self._nonce, sent=False):
            return NotExecuted(error.message)
        if error.data == marked(self._nonce, sent=True):
            return ConnectionLost()
        if (error.code, error.message) == _SESSION_ENDED:
            live.lost.set()
            return NotExecuted("the MCP server has ended the session")
        if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
            return Failed(f"refused by the MCP server: {error.message}")
        return ConnectionLost() if live.lost.is_set() else error

    async def _connected(self) -> _Live:
        async with self._making:
            if self._live is None or self._live.lost.is_set():
                self._live = await self._made()
            return self._live

    async def _made(self) -> _Live:
        """A new connection, held by a task of its own: what the SDK opens must be closed where it was opened."""
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.wait({self._holding})
        ready: asyncio.Future[_Live] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(ready))
        try:
            async with asyncio.timeout(self._server.start_within_s):
                return await ready
        except TimeoutError:
            self._holding.cancel()
            raise McpUnreachable("TimeoutError") from None

    async def _hold(self, ready: "asyncio.Future[_Live]") -> None:
        lost = asyncio.Event()
        try:
            async with Client(self._transport(lost), cache=None) as client:
                listed = await _listed(client)
                if not ready.done():
                    ready.set_result(_Live(client, listed, {tool.name: fingerprint(tool) for tool in listed}, lost))
                await self._leave.wait()
        except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:  # noqa: BLE001 - callers are told
            if not ready.done():
                ready.set_exception(McpUnreachable(_class_of(error)))
        finally:
            lost.set()

    @asynccontextmanager
    async def _transport(self, lost: asyncio.Event) -> AsyncGenerator[TransportStreams]:
        """The SDK's streams, `lost` being set when nothing can be read from them any more."""
        async with opened(self._server, self._revealed, self._nonce) as (read, write):
            yield cast("ReadStream[SessionMessage | Exception]", _Watched(read, lost)), write


class _Watched:
    """The SDK's stream of what the server says; its end is told."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], lost: asyncio.Event) -> None:
        self._inner = inner
        self._lost = lost

    async def receive(self) -> SessionMessage | Exception:
        with self._reported():
            return await self._inner.receive()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        with self._reported():
            return await self._inner.__anext__()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "_Watched":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def _reported(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._lost.set()
            raise


async def _listed(client: Client) -> list[ListedTool]:
    """Every page of what the server lists."""
    found: list[ListedTool] = []
    cursor: str | None = None
    while len(found) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    return found


def _request(ctx: ToolContext, name: str, arguments: dict[str, Any]) -> CallToolRequest:
    trace = {"traceparent": ctx.traceparent} if ctx.traceparent is not None else {}
    meta = cast("Any", {EXTERNAL_KEY: ctx.external_key, **trace})
    return CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments, _meta=meta))


def _class_of(error: BaseException) -> str:
    """The innermost class: the SDK's task groups say nothing by themselves."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__
