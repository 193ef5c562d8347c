"""One client's connection to one server: every message is handed on as it is, but for calls of tools and their list.

Calls of tools never reach the server from here: the executors call it. What the server says to a request that it was
not sent is dropped, and so is a notification of the client that is none.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp.client._transport import TransportStreams
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.methods import SPEC_CLIENT_METHODS

from aetheris.cli.mcp_proxy import proxied_answers as say
from aetheris.cli.mcp_proxy.proxied_calls import InvalidCall, ProxiedCalls, ServerFailed
from aetheris.sdk.client import ApiError
from aetheris.sdk.toolkits.mcp.pins import PinsFileInvalid

MOST_AT_A_TIME = 256
"""Requests of one client that are being answered."""

_MOST_PAGES = 100
_OURS = "aetheris/"
"""Begins the ids of what is asked in the proxy's own name."""
_GONE = "the MCP server has gone, or can't be reached"

Params = Mapping[str, Any]


@dataclass(frozen=True)
class _Asked:
    """A request that was handed on: of the client's, or in the proxy's own name."""

    method: str
    answer: "asyncio.Future[Params] | None" = None


class Relay:
    """Both directions, until one of the two ends."""

    def __init__(self, client: TransportStreams, server: TransportStreams, calls: ProxiedCalls) -> None:
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._calls = calls
        self._asked: dict[RequestId, _Asked] = {}
        self._asked_of_client: set[RequestId] = set()
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._handed_on: asyncio.Queue[SessionMessage] = asyncio.Queue(MOST_AT_A_TIME)
        self._version: str | None = None
        self._own = 0

    async def run(self) -> None:
        """Hand on, and answer, until the client ends.

        Raises:
            ServerFailed: the server has ended first; who waited for it has been told.
        """
        ways = [asyncio.ensure_future(way()) for way in (self._client_says, self._server_says, self._write)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not ways[0].done():
                await self._gone()
                raise ServerFailed(_GONE)
        finally:
            ended = [*ways, *self._answering.values()]
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    async def _client_says(self) -> None:
        async for item in self._from_client:
            if isinstance(item, Exception):
                continue  # the transport has answered it
            message = item.message
            if isinstance(message, JSONRPCRequest):
                await self._requested(message, item.metadata)
            elif isinstance(message, JSONRPCNotification):
                self._notified(message)
            elif message.id in self._asked_of_client:
                self._asked_of_client.discard(message.id)
                self._hand_on(message)

    async def _server_says(self) -> None:
        async for item in self._from_server:
            if isinstance(item, Exception):
                continue
            message = item.message
            if isinstance(message, JSONRPCRequest):
                if len(self._asked_of_client) < MOST_AT_A_TIME:
                    self._asked_of_client.add(message.id)
                    await self._to_client.send(SessionMessage(message))
            elif isinstance(message, JSONRPCNotification):
                if message.method == "notifications/tools/list_changed":
                    self._calls.tools.forget()
                await self._to_client.send(SessionMessage(message, self._about(message)))
            elif message.id is not None and (asked := self._asked.pop(message.id, None)) is not None:
                await self._answered(message, asked)

    async def _requested(self, message: JSONRPCRequest, metadata: MessageMetadata) -> None:
        if message.id in self._asked or message.id in self._answering or str(message.id).startswith(_OURS):
            await self._refuse(message.id, INVALID_PARAMS, "a request of this id is being answered")
        elif len(self._asked) + len(self._answering) >= MOST_AT_A_TIME:
            await self._refuse(message.id, INTERNAL_ERROR, f"{MOST_AT_A_TIME} requests are being answered: wait")
        elif message.method == "tools/call" or message.method.startswith("tasks/"):
            self._answer(message, metadata)
        elif message.method not in SPEC_CLIENT_METHODS:
            await self._refuse(message.id, METHOD_NOT_FOUND, "the proxy knows no such method")
        else:
            self._asked[message.id] = _Asked(message.method)
            if not self._hand_on(message):
                del self._asked[message.id]
                await self._refuse(message.id, INTERNAL_ERROR, "the MCP server reads nothing")

    def _notified(self, message: JSONRPCNotification) -> None:
        if message.method == "notifications/cancelled":
            answering = self._answering.get(cast("RequestId", (message.params or {}).get("requestId", "")))
            if answering is not None:
                answering.cancel()  # its job goes on, and an equal call finds it
                return
        if message.method.startswith("notifications/"):
            self._hand_on(message)

    def _hand_on(self, message: Any) -> bool:
        """To the server; False where it has not read what was handed on before: nobody waits for it."""
        try:
            self._handed_on.put_nowait(SessionMessage(message, ClientMessageMetadata(headers=self._headers(message))))
        except asyncio.QueueFull:
            return False
        return True

    async def _write(self) -> None:
        while True:
            await self._to_server.send(await self._handed_on.get())

    def _headers(self, message: Any) -> dict[str, str]:
        """What a streamable HTTP endpoint asks for beside the message; a process sees none of it."""
        params: Params = getattr(message, "params", None) or {}
        version = _meta(params).get(say.VERSION)
        if not isinstance(version, str):
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version is not None else {}
        found = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        return found | ({MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else {})

    def _about(self, message: JSONRPCNotification) -> MessageMetadata:
        """Progress belongs to the request that asked for it, which over HTTP has a stream of its own."""
        token = (message.params or {}).get("progressToken") if message.method == "notifications/progress" else None
        return ServerMessageMetadata(related_request_id=token) if token in self._asked else None

    async def _answered(self, message: JSONRPCResponse | JSONRPCError, asked: _Asked) -> None:
        if asked.answer is not None:
            if isinstance(message, JSONRPCResponse):
                asked.answer.set_result(message.result)
            else:
                asked.answer.set_exception(ServerFailed(message.error.message))
            return
        if isinstance(message, JSONRPCResponse):
            try:
                message = message.model_copy(update={"result": await self._amended(asked.method, message.result)})
            except (ApiError, PinsFileInvalid) as error:
                await self._refuse(message.id, INTERNAL_ERROR, f"no tool can be shown: {error}")
                return
        await self._to_client.send(SessionMessage(message))

    async def _amended(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            version = result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None
            return say.initialized(result)
        if method == "server/discover":
            return say.found(result)
        if method == "tools/list":
            return {**result, "tools": await self._shown(result)}
        return result

    async def _shown(self, result: Params) -> list[dict[str, Any]]:
        listed = result.get("tools")
        as_task = self._version == say.VERSION_WITH_TASKS
        return await self._calls.tools.shown(
            cast("list[Any]", listed) if isinstance(listed, list) else [], as_task=as_task
        )

    def _answer(self, message: JSONRPCRequest, metadata: MessageMetadata) -> None:
        task = asyncio.create_task(self._say(message, metadata))
        self._answering[message.id] = task
        task.add_done_callback(lambda _: self._answering.pop(message.id, None))

    async def _say(self, message: JSONRPCRequest, metadata: MessageMetadata) -> None:
        """Answer a call, or what is asked of a task."""
        params: Params = message.params or {}
        meta = _meta(params)
        try:
            if message.method == "tools/call":
                result = await self._calls.call(
                    params, meta, _request_of(metadata), lambda: self._list(meta), self._version
                )
            else:
                result = await self._calls.about_task(message.method, params, meta)
        except InvalidCall as refused:
            await self._refuse(message.id, refused.code, str(refused))
        except asyncio.CancelledError:
            unanswered = metadata.on_request_unanswered if isinstance(metadata, ServerMessageMetadata) else None
            if unanswered is not None:
                await unanswered()
            raise
        else:
            if say.VERSION in meta:
                result.setdefault("resultType", "complete")
            await self._to_client.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)))

    async def _list(self, meta: Params) -> None:
        """Have the server list its tools, in our own name.

        Raises:
            ServerFailed, ApiError, PinsFileInvalid.
        """
        envelope = {"_meta": {name: meta[name] for name in meta if name.startswith("io.modelcontextprotocol/")}}
        cursor: Params = {}
        for _ in range(_MOST_PAGES):
            result = await self._ask("tools/list", {**(envelope if say.VERSION in meta else {}), **cursor})
            await self._shown(result)
            if not isinstance(result.get("nextCursor"), str):
                return
            cursor = {"cursor": result["nextCursor"]}

    async def _ask(self, method: str, params: dict[str, Any]) -> Params:
        self._own += 1
        message = JSONRPCRequest(jsonrpc="2.0", id=f"{_OURS}{self._own}", method=method, params=params)
        answer: asyncio.Future[Params] = asyncio.get_running_loop().create_future()
        self._asked[message.id] = _Asked(method, answer)
        try:
            if not self._hand_on(message):
                raise ServerFailed("the MCP server reads nothing")
            return await answer
        finally:
            self._asked.pop(message.id, None)

    async def _gone(self) -> None:
        """The server has ended: whoever waits for it is told."""
        for request_id, asked in list(self._asked.items()):
            if asked.answer is None:
                await self._refuse(request_id, INTERNAL_ERROR, _GONE)
            elif not asked.answer.done():
                asked.answer.set_exception(ServerFailed(_GONE))
        self._asked.clear()

    async def _refuse(self, request_id: RequestId | None, code: int, text: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))
        await self._to_client.send(SessionMessage(error))


def _meta(params: Params) -> dict[str, Any]:
    given = params.get("_meta")
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _request_of(metadata: MessageMetadata) -> Any:
    """The HTTP request that a message came with."""
    return metadata.request_context if isinstance(metadata, ServerMessageMetadata) else None
