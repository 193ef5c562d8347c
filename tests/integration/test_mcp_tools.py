"""McpTools of an MCP server, on the official SDK and over both transports: what is registered, sent, and said of it."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import pytest
from mcp import MCPError

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from aetheris.sdk import Failed, NotExecuted, ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import InDoubt, Outcome, Permanent, Retryable, Succeeded
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.toolkits import mcp
from aetheris.sdk.toolkits.mcp.connection import ConnectionLost, McpConnection, _Live
from aetheris.sdk.toolkits.mcp.mapping import tool_of
from aetheris.sdk.toolkits.mcp.servers import McpServer
from tests.testkit.external_server import until
from tests.testkit.mcp_server import effects
from tests.testkit.system import REPOSITORY

CTX = ToolContext("aetheris:job-1:n.1:0", 0, "ab" * 32, "job-1", "n.1", traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
BOTH = pytest.mark.parametrize("transport", ["stdio", "http"])


def argv(home: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.testkit.mcp_server", str(home), *more]


@contextmanager
def serving(home: Path, port: int) -> Generator[None]:
    """The server on HTTP."""
    child = spawn(argv(home, str(port)), log=home / "server.log")
    try:
        until(lambda: listens(port), 30)
        yield
    finally:
        end(child, 0.1)


def listens(port: int) -> bool:
    with socket.socket() as invocation:
        return invocation.connect_ex(("127.0.0.1", port)) == 0


class McpTools:
    """The tools of one server, called as the executor calls them."""

    def __init__(self, found: mcp.Discovered) -> None:
        self.found = found
        self.by_name = {tool.name: tool for tool in found.tools}

    async def call(self, name: str, **args: Any) -> Outcome:
        return await invoke(self.by_name[f"t.{name}"], args, CTX)


@asynccontextmanager
async def tools_of(home: Path, server: dict[str, Any], **secrets: str) -> AsyncGenerator[McpTools]:
    path = home / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {"t": {"annotations": "trusted"} | server}, "inputs": "another client's"})
    )
    async with mcp.discovered(mcp.read_servers(path), lambda _place, _uses: secrets, mcp.Pins.beside(path)) as found:
        yield McpTools(found)


@asynccontextmanager
async def tools(home: Path, transport: str, **more: Any) -> AsyncGenerator[McpTools]:
    if transport == "stdio":
        command = {"command": sys.executable, "args": argv(home)[1:], "cwd": str(REPOSITORY)}
        async with tools_of(home, command | more) as found:
            yield found
    else:
        port = free_port()
        with serving(home, port):
            async with tools_of(home, {"url": f"http://127.0.0.1:{port}/mcp"} | more) as found:
                yield found


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@BOTH
async def test_a_server_is_used_as_it_is(tmp_path: Path, transport: str) -> None:
    declared = {"look": {"effect_class": "opaque", "irreversible": True}, "act": {"irreversible": False}}
    async with tools(tmp_path, transport, tools=declared) as found:
        known = {name.removeprefix("t."): (one.effect_class, one.irreversible) for name, one in found.by_name.items()}
        assert known == {
            "look": ("opaque", True),
            "put": ("idempotent", False),
            "add": ("opaque", False),
            "act": ("opaque", False),
            "issue": ("opaque", False),
            "fails": ("opaque", False),
            "refuses": ("opaque", False),
            "dies": ("opaque", False),
            "shifts": ("opaque", False),
            "env": ("pure", False),
        }
        assert sorted(found.found.left_out) == ["t.no name", "t.remote"]
        assert "another document" in found.found.left_out["t.remote"]
        assert found.by_name["t.put"].registry_entry()["schema"]["properties"]["text"] == {"type": "string"}
        assert found.by_name["t.put"].__doc__ == "Says the same twice, once."
        assert await found.call("put", text="a") == Succeeded(said("put a"), CTX.external_key)
        assert await found.call("put", text=1) == Permanent("invalid_args: /text: must be string")
        assert await found.call("refuses") == Permanent("refused by the MCP server: never heard of it")
        failed = Succeeded(said("fails b") | {"isError": True}, CTX.external_key, partial=True)
        assert await found.call("fails", text="b") == failed
    assert [(one["tool"], one["key"]) for one in effects(tmp_path)] == [
        ("put", CTX.external_key),
        ("fails", CTX.external_key),
    ]


async def test_what_is_declared_decides(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    declared = {
        "fails": {"effect_class": "pure"},
        "add": {"external_key": "text", "effect_class": "idempotent"},
        "act": {"hidden": True},
        "dies": {"effect_class": "pure"},
    }
    async with tools(tmp_path, "stdio", annotations="ignored", on_error="result", tools=declared) as found:
        assert found.by_name["t.put"].registry_entry()["effect_class"] == "opaque"
        assert found.by_name["t.put"].irreversible
        assert "t.act" not in found.by_name
        assert await found.call("fails", text="b") == Succeeded(said("fails b") | {"isError": True})
        assert await found.call("add") == Succeeded(said(f"add {CTX.external_key}"), CTX.external_key)
        assert await found.call("add", text="mine") == Permanent("text is given the external key: leave it out")
        assert await found.call("dies") == Retryable("ConnectionLost")
    async with tools(tmp_path, "stdio", tools={"fails": {"effect_class": "pure"}}) as found:
        assert await found.call("fails", text="b") == Permanent("fails b")


@BOTH
async def test_a_required_argument_can_be_given_the_external_key(tmp_path: Path, transport: str) -> None:
    declared = {"issue": {"external_key": "request_id", "effect_class": "idempotent"}}
    async with tools(tmp_path, transport, tools=declared) as found:
        schema = found.by_name["t.issue"].registry_entry()["schema"]
        assert (sorted(schema["properties"]), schema["required"]) == (["hold", "number", "text"], ["text"])
        for _ in range(2):
            assert await found.call("issue", text="a") == Succeeded(said("issue a"), CTX.external_key)
        assert isinstance(await found.call("issue", text="a", request_id="mine-mine"), Permanent)
        assert await found.call("issue") == Permanent("invalid_args: /: missing text")
    assert [one["args"] for one in effects(tmp_path)] == [{"text": "a", "request_id": CTX.external_key}]


@pytest.mark.parametrize(
    ("tool", "argument", "rule"),
    [
        ("issue", "request_idd", "request_idd is no argument of it (it has hold, number, request_id, text)"),
        ("issue", "number", "number can't be a text such as aetheris:"),
        ("env", "key", "key is no argument of it (it has none)"),
    ],
)
async def test_a_key_that_the_server_would_not_see_leaves_its_tool_out(
    tmp_path: Path, tool: str, argument: str, rule: str
) -> None:
    async with tools(tmp_path, "stdio", tools={tool: {"external_key": argument}}) as found:
        assert f"t.{tool}" not in found.by_name
        assert rule in found.found.left_out[f"t.{tool}"]


@BOTH
async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt(tmp_path: Path, transport: str) -> None:
    port = free_port()
    async with tools(tmp_path, "stdio") if transport == "stdio" else lost_and_found(tmp_path, port) as found:
        assert await found.call("dies", text="x") == InDoubt("ConnectionLost")
        assert len(effects(tmp_path, "dies")) == 1
        if transport == "stdio":
            assert await found.call("put", text="again") == Succeeded(said("put again"), CTX.external_key)
            return
        await asyncio.to_thread(until, lambda: not listens(port), 20)
        assert await found.call("put", text="refused") == Retryable("nothing was sent: ConnectError")
        with serving(tmp_path, port):
            assert await found.call("put", text="new") == Succeeded(said("put new"), CTX.external_key)
    assert [one["args"]["text"] for one in effects(tmp_path, "put")] == ["new"]


@asynccontextmanager
async def lost_and_found(home: Path, port: int) -> AsyncGenerator[McpTools]:
    with serving(home, port):
        async with tools_of(home, {"url": f"http://127.0.0.1:{port}/mcp"}) as found:
            yield found


@pytest.mark.parametrize(
    ("code", "message", "data", "meant"),
    [
        (types.METHOD_NOT_FOUND, "no such tool", None, Failed),
        (types.INVALID_PARAMS, "no", None, Failed),
        (types.INVALID_REQUEST, "Session terminated", None, NotExecuted),
        (types.INVALID_REQUEST, "no", None, MCPError),
        (types.INTERNAL_ERROR, "Server returned an error response", None, MCPError),
        (types.PARSE_ERROR, "no", None, MCPError),
        (types.INTERNAL_ERROR, "no", "a guess not sent", MCPError),
    ],
)
def test_what_an_error_says(code: int, message: str, data: Any, meant: type[Exception]) -> None:
    connection, lost = McpConnection(McpServer(command="x"), {}), asyncio.Event()
    live = _Live(cast("Any", None), (), {}, lost)
    assert type(connection._meant(live, MCPError(code, message, data))) is meant
    assert lost.is_set() == (message == "Session terminated")
    assert type(connection._meant(live, MCPError(code, message, f"{connection._nonce} not sent"))) is NotExecuted
    assert type(connection._meant(live, MCPError(code, message, f"{connection._nonce} lost"))) is ConnectionLost


def test_a_tool_that_is_called_as_a_task_only_is_left_out() -> None:
    execution = types.ToolExecution(task_support="required")
    listed = types.Tool(name="slow", input_schema={"type": "object"}, execution=execution)
    with pytest.raises(DeclarationError, match="as a task only"):
        tool_of("t", McpServer(command="x"), listed, McpConnection(McpServer(command="x"), {}).call)


async def test_a_tool_that_has_changed_is_not_called(tmp_path: Path) -> None:
    async with tools(tmp_path, "stdio") as found:
        assert isinstance(await found.call("shifts", text="x"), Succeeded)
        (tmp_path / "schema").touch()
        assert await found.call("dies") == InDoubt("ConnectionLost")
        another = Permanent("the MCP server's tool is another than was pinned: look at it, and `aetheris mcp pin`")
        assert await found.call("shifts", text="x") == another
    assert len(effects(tmp_path, "shifts")) == 1


async def test_a_hint_is_ignored_where_nobody_trusts_it(tmp_path: Path) -> None:
    """A server that says of a tool that destroys that it only reads ran without a yes."""
    assert McpServer(command="x").annotations == "ignored"
    async with tools(tmp_path, "stdio", annotations="ignored") as found:
        for tool in found.by_name.values():
            entry = tool.registry_entry()
            assert (entry["effect_class"], entry["irreversible"]) == ("opaque", True)


async def test_a_tool_that_says_something_else_is_left_out_until_it_is_pinned_again(tmp_path: Path) -> None:
    pins = mcp.Pins.beside(tmp_path / "mcp.json")
    async with tools(tmp_path, "stdio") as found:
        assert "t.shifts" in found.by_name
    first = pins.of("t")
    (tmp_path / "schema").touch()
    async with tools(tmp_path, "stdio") as found:
        assert "t.shifts" not in found.by_name
        assert "t.put" in found.by_name
        assert "says something else of itself than was pinned" in found.found.left_out["t.shifts"]
    assert pins.of("t") == first
    server = {"command": sys.executable, "args": argv(tmp_path)[1:], "cwd": str(REPOSITORY)}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"t": server}}))
    called = [sys.executable, "-m", "aetheris.cli", "mcp", "pin", "--json"]
    env = {**os.environ, "AETHERIS_MCP": str(tmp_path / "mcp.json"), "PYTHONPATH": str(REPOSITORY)}
    for more, code, state in ((["--check"], 1, "changed"), ([], 0, "changed"), (["--check"], 0, "same")):
        done = await asyncio.to_thread(subprocess.run, [*called, *more], env=env, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert {one["tool"]: one["state"] for one in json.loads(done.stdout)["tools"]}["shifts"] == state
    async with tools(tmp_path, "stdio") as found:
        assert "t.shifts" in found.by_name


async def test_a_tool_that_comes_later_waits_to_be_pinned(tmp_path: Path) -> None:
    pins = mcp.Pins.beside(tmp_path / "mcp.json")
    async with tools(tmp_path, "stdio"):
        known = dict(pins.of("t") or {})
    pins.keep("t", {name: pin for name, pin in known.items() if name != "add"})
    async with tools(tmp_path, "stdio") as found:
        assert found.found.left_out["t.add"] == "is not pinned: look at it, and `aetheris mcp pin`"


async def test_pins_that_cannot_be_read_or_written_let_nothing_through(tmp_path: Path) -> None:
    pins = tmp_path / "mcp.pins.json"
    pins.write_text("[]")
    with pytest.raises(mcp.ServersFileInvalid, match="no file of pins"):
        async with tools(tmp_path, "stdio"):
            pass
    pins.unlink()
    (tmp_path / f".mcp.pins.json.{os.getpid()}").mkdir()
    async with tools(tmp_path, "stdio") as found:
        assert found.found.tools == ()
        assert "is not pinned" in found.found.left_out["t"]


@BOTH
async def test_an_answer_that_is_too_large_is_bounded(tmp_path: Path, transport: str) -> None:
    async with tools(tmp_path, transport, most_bytes=1000) as found:
        succeeded = await found.call("add", text="x" * 2000)
        assert isinstance(succeeded, Succeeded)
        assert succeeded.external_id == CTX.external_key
        assert set(succeeded.result) == {"content", "leftOut"}
    async with tools(tmp_path, transport, most_bytes=1000, tools={"add": {"effect_class": "pure"}}) as found:
        refused = await found.call("add", text="x" * 2000)
        assert isinstance(refused, Permanent)
        assert "1000 are taken" in refused.reason


async def test_an_endless_answer_breaks_off(tmp_path: Path) -> None:
    async with tools(tmp_path, "http", most_bytes=1000, tools={"add": {"timeout_s": 20}}) as found:
        assert await found.call("add", text="x" * 4_000_000) == InDoubt("ConnectionLost")
        assert await found.call("put", text="after") == Succeeded(said("put after"), CTX.external_key)


async def test_a_call_that_takes_too_long_is_in_doubt_and_others_go_on(tmp_path: Path) -> None:
    held = tmp_path / "hold"
    held.touch()
    async with tools(tmp_path, "stdio", tools={"add": {"timeout_s": 0.5}}) as found:
        slow = asyncio.create_task(found.call("add", text="slow", hold=True))
        assert await found.call("put", text="quick") == Succeeded(said("put quick"), CTX.external_key)
        assert await slow == InDoubt("TimeoutError")
        held.unlink()
        assert await found.call("put", text="after") == Succeeded(said("put after"), CTX.external_key)


async def test_a_server_that_cannot_be_started_is_left_out(tmp_path: Path) -> None:
    async with tools_of(tmp_path, {"command": str(tmp_path / "nothing")}) as found:
        assert found.found == mcp.Discovered((), {"t": "can't be reached: FileNotFoundError"})
    async with tools_of(tmp_path, {"command": "cat", "start_within_s": 0.5}) as found:
        assert list(found.found.left_out) == ["t"]
    async with tools_of(tmp_path, {"url": f"http://127.0.0.1:{free_port()}/mcp"}) as found:
        assert list(found.found.left_out) == ["t"]


async def test_a_servers_settings_may_name_secrets(tmp_path: Path) -> None:
    named = {"TOKEN": {"$secret": "token@1"}}
    command = {"command": sys.executable, "args": argv(tmp_path)[1:], "cwd": str(REPOSITORY), "env": named}
    async with tools_of(tmp_path, command, **{"token@1": "hunter2hunter2"}) as found:
        assert await found.call("env") == Succeeded(said("hunter2hunter2"))
    (server,) = mcp.read_servers(tmp_path / "mcp.json").values()
    assert [(one.at, one.name) for one in server.secrets] == [("/env/TOKEN", "token@1")]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", "not readable as JSON"),
        ("{}", "mcpServers: is missing"),
        ('{"mcpServers": {"a b": {"command": "x"}}}', "mcpServers.a b"),
        ('{"mcpServers": {"a": {}}}', "mcpServers.a: either command or url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}', "either command or url"),
        ('{"mcpServers": {"a": {"url": "ftp://x"}}}', "mcpServers.a.url"),
        ('{"mcpServers": {"a": {"command": "x", "tools": {"t": {"effect_class": "probeable"}}}}}', "effect_class"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"K": {"$secret": "hunter2"}}}}}', "env"),
    ],
)
def test_a_file_of_servers_that_cannot_be_used(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(mcp.ServersFileInvalid, match=rule) as refused:
        mcp.read_servers(tmp_path / "mcp.json")
    assert "hunter2" not in str(refused.value)
