"""What goes through the MCP proxy and what does not, between a client and a server that both lie (docs/mcp.md)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from aetheris.cli.mcp_proxy.relay import MOST_AT_A_TIME, Relay

Received = MemoryObjectReceiveStream[SessionMessage]
Sent = MemoryObjectSendStream[SessionMessage | Exception]
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "pay", "arguments": {}}}


@dataclass
class StubCalls:
    """Answers each call once it is let go; what was listed is what the server said, without `hidden`."""

    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    called: list[Any] = field(default_factory=list[Any])
    cancelled: int = 0
    forgotten: int = 0

    @property
    def tools(self) -> "StubCalls":
        return self

    def forget(self) -> None:
        self.forgotten += 1

    async def shown(self, listed: list[Any], *, as_task: bool) -> list[Any]:
        assert not as_task
        return [one for one in listed if one["name"] != "hidden"]

    async def call(self, params: Any, _meta: Any, _request: Any, list_tools: Any, _version: Any) -> dict[str, Any]:
        self.called.append(params)
        if params["name"] == "lists":
            await list_tools()
            return {"content": []}
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return {"content": [{"type": "text", "text": "ours"}]}


@dataclass
class Ends:
    """The client's end and the server's end of a relay."""

    calls: StubCalls
    client: tuple[Sent, Received]
    server: tuple[Sent, Received]

    async def say(self, **message: Any) -> None:
        """As the client, whatever JSON it is."""
        await self.client[0].send(_read({"jsonrpc": "2.0", **message}))

    async def answer(self, **message: Any) -> None:
        """As the server."""
        await self.server[0].send(_read({"jsonrpc": "2.0", **message}))

    async def told(self) -> dict[str, Any]:
        """What the client is told next."""
        return _written(await self.client[1].receive())

    async def asked(self) -> dict[str, Any]:
        """What the server is told next."""
        return _written(await self.server[1].receive())

    async def nothing_else_reached_the_server(self) -> None:
        await self.say(id="last", method="ping")
        assert (await self.asked())["id"] == "last"


def _read(message: dict[str, Any]) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_json(json.dumps(message), by_name=False))


def _written(message: SessionMessage) -> dict[str, Any]:
    return message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)


@asynccontextmanager
async def relayed() -> AsyncGenerator[Ends]:
    """A relay at work."""
    streams = [anyio.create_memory_object_stream[Any](0) for _ in range(4)]
    (to_relay, from_client), (to_client, from_relay), (server_says, from_server), (to_server, server_hears) = streams
    ends = Ends(StubCalls(), (to_relay, from_relay), (server_says, server_hears))
    relay = Relay((from_client, to_client), (from_server, to_server), cast("Any", ends.calls))
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(30):
            yield ends
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for one in streams:
            one[0].close()
            one[1].close()


async def test_what_is_no_call_goes_through_as_it_is() -> None:
    async with relayed() as ends:
        params = {"uri": "a", "_meta": {"any": ["thing"]}, "later": {"version": 1}}
        await ends.say(id="r", method="resources/read", params=params)
        assert await ends.asked() == {"jsonrpc": "2.0", "id": "r", "method": "resources/read", "params": params}
        await ends.answer(method="notifications/progress", params={"progressToken": "x", "progress": 1})
        assert (await ends.told())["method"] == "notifications/progress"
        await ends.answer(id="r", result={"contents": [], "more": None})
        assert await ends.told() == {"jsonrpc": "2.0", "id": "r", "result": {"contents": [], "more": None}}
        await ends.answer(id=1, method="sampling/createMessage", params={"messages": []})
        assert (await ends.told())["method"] == "sampling/createMessage"
        await ends.say(id=1, result={"role": "assistant"})
        assert (await ends.asked())["result"] == {"role": "assistant"}


async def test_a_call_never_reaches_the_server_and_the_server_answers_none() -> None:
    async with relayed() as ends:
        await ends.say(**CALL)
        for forged in (
            {"result": {"content": [{"type": "text", "text": "theirs"}]}},
            {"error": {"code": 1, "message": ""}},
        ):
            await ends.answer(id=7, **forged)
        ends.calls.let_go.set()
        assert "ours" in str(await ends.told())
        await ends.answer(id=7, result={"late": True})
        await ends.nothing_else_reached_the_server()
        assert len(ends.calls.called) == 1


@pytest.mark.parametrize(
    "message",
    [
        {**CALL, "id": 1.5},
        {name: value for name, value in CALL.items() if name != "id"},
        {**CALL, "id": None},
        {"method": "notifications", "params": {}},
        {"id": 3, "result": {}},
        {"id": "x", "error": {"code": 1, "message": "no such request was made"}},
    ],
)
async def test_what_only_looks_like_a_notification_or_an_answer_goes_nowhere(message: dict[str, Any]) -> None:
    async with relayed() as ends:
        await ends.say(**message)
        await ends.nothing_else_reached_the_server()
        assert ends.calls.called == []


@pytest.mark.parametrize("method", ["tools/callAll", "tools/call ", "Tools/call", "shell/run", ""])
async def test_a_method_that_nobody_knows_is_refused(method: str) -> None:
    async with relayed() as ends:
        await ends.say(id=1, method=method)
        assert (await ends.told())["error"]["code"] == -32601
        await ends.nothing_else_reached_the_server()


async def test_the_list_is_judged_also_when_it_is_asked_for_in_our_name() -> None:
    async with relayed() as ends:
        await ends.say(id=1, method="tools/list")
        await ends.asked()
        await ends.answer(id=1, result={"tools": [{"name": "a"}, {"name": "hidden"}], "nextCursor": "2"})
        assert (await ends.told())["result"] == {"tools": [{"name": "a"}], "nextCursor": "2"}
        await ends.answer(method="notifications/tools/list_changed")
        await ends.told()
        assert ends.calls.forgotten == 1
        await ends.say(id=2, method="tools/call", params={"name": "lists"})
        for cursor in ("next", None):
            own = await ends.asked()
            await ends.answer(id=own["id"], result={"tools": [], "nextCursor": cursor} if cursor else {"tools": "none"})
        assert (await ends.told())["id"] == 2


async def test_a_client_that_gives_up_ends_the_waiting_and_not_the_call() -> None:
    async with relayed() as ends:
        await ends.say(**CALL)
        await ends.say(method="notifications/cancelled", params={"requestId": 7})
        await ends.nothing_else_reached_the_server()
        assert ends.calls.cancelled == 1
        await ends.say(id="r", method="prompts/list")
        await ends.asked()
        await ends.say(method="notifications/cancelled", params={"requestId": "r"})
        assert (await ends.asked())["params"] == {"requestId": "r"}


async def test_a_server_that_reads_nothing_holds_up_no_call() -> None:
    async with relayed() as ends:
        for number in range(MOST_AT_A_TIME + 10):
            await ends.say(method="notifications/progress", params={"progressToken": number, "progress": 1})
        await ends.say(id="r", method="prompts/list")
        assert "reads nothing" in (await ends.told())["error"]["message"]
        ends.calls.let_go.set()
        await ends.say(**CALL)
        assert "ours" in str(await ends.told())


async def test_a_flood_of_notifications_waits_for_the_client_and_a_call_is_answered_in_it() -> None:
    async with relayed() as ends:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await ends.answer(method="notifications/message", params={"data": sent})
                sent += 1

        flooding = asyncio.create_task(flood())
        ends.calls.let_go.set()
        await ends.say(**CALL)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sent <= 2, "nothing is kept that the client has not read"
        while "result" not in await ends.told():
            pass
        flooding.cancel()


async def test_who_waits_for_a_server_that_has_gone_is_told() -> None:
    async with relayed() as ends:
        await ends.say(id="r", method="prompts/list")
        await ends.asked()
        ends.server[0].close()
        assert "has gone" in (await ends.told())["error"]["message"]


async def test_a_client_asks_no_more_at_a_time_than_it_may_and_nothing_under_one_id_twice() -> None:
    async with relayed() as ends:
        await ends.say(**CALL)
        await ends.say(**CALL)
        assert "being answered" in (await ends.told())["error"]["message"]
        await ends.say(id="aetheris/1", method="ping")
        assert "error" in await ends.told()
        for number in range(MOST_AT_A_TIME):
            await ends.say(**{**CALL, "id": f"c{number}"})
        assert str(MOST_AT_A_TIME) in (await ends.told())["error"]["message"]
        assert len(ends.calls.called) == MOST_AT_A_TIME
