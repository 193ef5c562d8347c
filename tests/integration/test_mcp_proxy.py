"""Agents elsewhere behind `aetheris mcp proxy`: their calls are jobs, all else goes through (docs/mcp.md)."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import mcp_types as types
import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from pydantic import ConfigDict

from aetheris.cli import token_files
from aetheris.protocol.base.principals import PrincipalKind, Role
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.mcp_proxies import ProxyRig, killed_flow, proxies_of, running_proxy_rig
from tests.testkit.mcp_server import effects
from tests.testkit.system import REPOSITORY
from tests.testkit.tokens import entry_of, headers_of

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

TASKS = "io.modelcontextprotocol/tasks"
AGENT = (Role.SUBMIT, Role.READ, Role.READ_PAYLOADS)
PEOPLE = (
    entry_of("bot", "acme", roles=AGENT, kind=PrincipalKind.AGENT),
    entry_of("other-bot", "acme", roles=AGENT, kind=PrincipalKind.AGENT),
    entry_of("auditor", "acme", roles=[Role.AUDIT]),
    entry_of("mallory", "globex", roles=AGENT, kind=PrincipalKind.AGENT),
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ProxyRig]:
    folder = tmp_path_factory.mktemp("proxy")
    with served_over_http(folder) as url:
        others = {"h": {"url": url, "annotations": "trusted"}, "gone": {"command": "no-such-command"}}
        with running_proxy_rig(folder, **others) as rig:
            with token_files.changed(rig.system.data / "tokens.toml") as entries:
                entries.extend(PEOPLE)
            yield rig


@contextmanager
def served_over_http(folder: Path) -> Generator[str]:
    """The server of tests on streamable HTTP, with effects of its own; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "other").mkdir()
    argv = [sys.executable, "-m", "tests.testkit.mcp_rich_server", str(folder / "other"), str(port)]
    with subprocess.Popen(argv, cwd=REPOSITORY) as server:
        try:
            until(lambda: answers(port), 60)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def text_of(answer: types.CallToolResult) -> str:
    (one,) = answer.content
    assert isinstance(one, types.TextContent)
    return one.text


async def test_tools_are_shown_as_registered_and_their_calls_are_jobs(rig: ProxyRig) -> None:
    text = fresh("shown")
    async with rig.agent("--run", text) as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"remote", "no name"}.isdisjoint(offered), "what can't be registered can't be called"
        assert "request_id" not in str(offered["issue"].input_schema)
        first = await client.call_tool("issue", {"text": text})
        assert (first.is_error, text_of(first)) == (False, f"issue {text}")
        again = await client.call_tool("issue", {"text": text})
        assert (text_of(again), (again.meta or {})["io.aetheris/already-done"]) == (f"issue {text}", True)
    async with rig.agent("--run", text) as client:
        assert text_of(await client.call_tool("issue", {"text": text, "hold": False})) == f"issue {text}"
    assert len(effects(rig.home, "issue", text)) == 1


async def test_all_else_goes_through_as_it_is(rig: ProxyRig) -> None:
    async with rig.agent(mode="legacy", sampling_callback=sampled) as client:
        assert client.server_info is not None
        assert client.server_info.name == "test"
        assert [str(one.uri) for one in (await client.list_resources()).resources] == ["test://one"]
        assert "first" in str((await client.read_resource("test://one")).contents)
        assert [one.name for one in (await client.list_prompts()).prompts] == ["ask", "flood", "die"]
        assert "who? me" in str((await client.get_prompt("ask")).messages)
        completed = await client.complete(types.PromptReference(name="ask"), {"name": "x", "value": "b"})
        assert completed.completion.values == ["b!"]


async def test_a_call_that_goes_on_is_answered_before_its_client_gives_up_and_is_joined(rig: ProxyRig) -> None:
    text, held = fresh("slow"), rig.home / "hold"
    held.touch()
    async with rig.agent("--run", text, mode="legacy", read_timeout_seconds=20) as client:
        answer = await client.call_tool("put", {"text": text, "hold": True})
        assert "exactly the same arguments" in text_of(answer)
        again = await client.call_tool("put", {"text": text, "hold": True})
        assert again.meta == answer.meta
        held.unlink()
        while (answer.meta or {}).get("io.aetheris/pending"):
            answer = await client.call_tool("put", {"text": text, "hold": True})
        assert text_of(answer) == f"put {text}"
    assert len(effects(rig.home, "put", text)) == 1


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_what_waits_for_a_human_says_so_and_what_he_says_holds(rig: ProxyRig, verdict: str) -> None:
    text = fresh(verdict)
    async with rig.agent("--run", text, "--answer-within", "1", mode="legacy") as client:
        answer = await client.call_tool("act", {"text": text})
        job = str((answer.meta or {})["io.aetheris/job"])
        request = await asyncio.to_thread(rig.system.wait_asked, job)
        body = {"request_id": request["request_id"], "action": verdict, "comment": "seen"}
        answered = rig.system.api.post("/ecs/respond", json=body, headers=rig.system.approver)
        assert answered.status_code in (200, 202), answered.text
        await asyncio.to_thread(rig.system.wait_ended, [job])
        told = await client.call_tool("act", {"text": text})
        assert told.is_error is (verdict == "reject")
        assert "It took no effect" in text_of(told) if verdict == "reject" else text_of(told) == f"act {text}"
        assert (told.meta or {})["io.aetheris/job"] == job, "a no is told once, and is no reason to ask again"
    assert len(effects(rig.home, "act", text)) == (verdict == "approve")


async def test_without_a_run_what_cannot_be_undone_is_refused_with_words(rig: ProxyRig) -> None:
    text = fresh("no-run")
    async with rig.agent() as client:
        refused = await client.call_tool("issue", {"text": text})
        assert (refused.is_error, "belongs to no run" in text_of(refused)) == (True, True)
        assert text_of(await client.call_tool("put", {"text": text})) == f"put {text}"
        named = await client.call_tool("issue", {"text": text}, meta={"io.aetheris/run": text})
        assert text_of(named) == f"issue {text}"
    assert len(effects(rig.home, "issue", text)) == 1


async def test_a_tool_that_says_something_else_than_was_pinned_is_refused_by_name(rig: ProxyRig) -> None:
    changed = rig.home / "schema"
    async with rig.agent("--run", "pins", mode="legacy") as client:
        assert "shifts" in {tool.name for tool in (await client.list_tools()).tools}
        changed.touch()
        try:
            assert "shifts" not in {tool.name for tool in (await client.list_tools()).tools}
            refused = await client.call_tool("shifts", {"text": "x"})
        finally:
            changed.unlink()
    assert (refused.is_error, "shifts says something else of itself" in text_of(refused)) == (True, True)
    assert effects(rig.home, "shifts") == []


def test_killed_again_and_again_a_flow_has_each_effect_once(rig: ProxyRig) -> None:
    killed_flow(rig, [sys.executable, "-m", "tests.testkit.refund_flow"], kills=8)


async def test_a_call_is_answered_in_a_flood_and_a_proxy_ends_with_its_server(rig: ProxyRig) -> None:
    run = fresh("ends")
    async with rig.agent("--run", run, mode="legacy") as client:
        flood = asyncio.create_task(client.get_prompt("flood"))
        assert text_of(await client.call_tool("put", {"text": run})) == f"put {run}"
        assert "sent" in str((await flood).messages)
        with pytest.raises(MCPError, match="has gone"):
            await client.get_prompt("die")
        await asyncio.to_thread(until, lambda: not proxies_of(run), 30)


def test_a_proxy_ends_with_its_client(rig: ProxyRig) -> None:
    argv = rig.command("--run", fresh("ends"))
    with subprocess.Popen(argv, cwd=REPOSITORY, env=rig.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        said(proxy, id=1, method="no/such")
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        assert b"no such method" in proxy.stdout.readline()
        proxy.stdin.close()
        assert proxy.wait(30) == 0


async def sampled(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """The client's model."""
    (asked,) = params.messages
    assert isinstance(asked.content, types.TextContent)
    said = types.TextContent(text=f"{asked.content.text} me")
    return types.CreateMessageResult(role="assistant", content=said, model="m")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_before_a_server_over_http_it_is_the_same(rig: ProxyRig, mode: Any) -> None:
    text, there = fresh(mode), rig.home.parent / "other"
    async with rig.agent("--run", text, server="h", mode=mode, sampling_callback=sampled) as client:
        assert "put" in {tool.name for tool in (await client.list_tools()).tools}
        for _ in range(2):
            assert text_of(await client.call_tool("put", {"text": text})) == f"put {text}"
        assert "first" in str((await client.read_resource("test://one")).contents)
        if mode == "legacy":
            assert "who? me" in str((await client.get_prompt("ask")).messages)
    with rig.listening() as url:
        async with caller(f"{url}/h/mcp?run={text}", "bot", sampling_callback=sampled) as client:
            assert text_of(await client.call_tool("put", {"text": text})) == f"put {text}"
            assert "who? me" in str((await client.get_prompt("ask")).messages)
        with pytest.raises(BaseExceptionGroup) as gone:
            async with caller(f"{url}/gone/mcp", "bot"):
                pass
        assert gone.group_contains(MCPError)
    assert [len(effects(there, "put", text)), len(effects(rig.home, "put", text))] == [2, 0], "one in each tenant"


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
JSON = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def caller(url: str, who: str, run: str | None = None, **how: Any) -> AsyncGenerator[Client]:
    """A client over HTTP, by the token of `who`."""
    headers = headers_of(who) | ({"aetheris-run": run} if run is not None else {})
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), **how) as client,
    ):
        yield client


async def test_over_http_a_run_belongs_to_the_tenant_of_the_token(rig: ProxyRig) -> None:
    text = fresh("tenants")
    with rig.listening() as base:
        url = f"{base}/t/mcp"
        for who, run in (("bot", f"{url}?run=same"), ("bot", f"{url}?run=same"), ("mallory", f"{url}?run=same")):
            async with caller(run, who) as client:
                assert text_of(await client.call_tool("issue", {"text": text})) == f"issue {text}"
        async with caller(url, "bot", "same") as client:
            again = await client.call_tool("issue", {"text": text})
            assert (again.meta or {})["io.aetheris/already-done"]
        async with caller(url, "bot") as client:
            assert "belongs to no run" in text_of(await client.call_tool("issue", {"text": text}))
            assert "first" in str((await client.read_resource("test://one")).contents)
    assert len(effects(rig.home, "issue", text)) == 2, "one in each tenant"


def test_over_http_nobody_speaks_without_a_token_from_another_page_or_in_anothers_session(rig: ProxyRig) -> None:
    with rig.listening("--origin", "https://ours.example") as base, httpx.Client(trust_env=False, timeout=60) as http:
        url = f"{base}/t/mcp"

        def status(body: Any = INITIALIZE, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return http.post(url, json=body, headers=JSON | named).status_code

        by = headers_of("bot")
        assert http.post(url, json=INITIALIZE, headers=JSON).headers["www-authenticate"] == "Bearer"
        assert [status(), status(authorization="Bearer nobody"), status(authorization="Basic x")] == [401] * 3
        assert status(**headers_of("auditor")) == 403, "who may submit nothing may read nothing here either"
        assert [status(**by, origin=one) for one in ("https://theirs.example", "null")] == [403] * 2
        assert status(**by, host="theirs.example") == 421
        assert http.post(f"{url}/x", json=INITIALIZE, headers=JSON | by).status_code == 404
        assert status(LIST, **by) == 400, "nothing comes before a session"
        assert status(**by, mcp_protocol_version="2026-07-28") == 400
        assert status("x" * 5_000_000, **by) == 413
        begun = http.post(url, json=INITIALIZE, headers=JSON | by | {"origin": "https://ours.example"})
        session = begun.headers["mcp-session-id"]
        assert (begun.status_code, len(session) >= 43) == (200, True)
        for other in (headers_of("mallory"), headers_of("other-bot")):
            assert status(LIST, **other, mcp_session_id=session) == 404
            assert http.get(url, headers=JSON | other | {"mcp-session-id": session}).status_code == 404
            assert http.delete(url, headers=other | {"mcp-session-id": session}).status_code == 404
        assert status(LIST, **by, mcp_session_id=session[:-1] + "_") == 404
        assert status(LIST, **by, mcp_session_id=session) == 200
        assert http.delete(url, headers=by | {"mcp-session-id": session}).status_code == 200
        assert status(LIST, **by, mcp_session_id=session) == 404


async def test_a_task_is_given_in_place_of_a_result_where_the_client_takes_one(rig: ProxyRig) -> None:
    text, held = fresh("task"), rig.home / "hold"
    held.touch()
    tasks = Tasks(lambda: held.unlink(missing_ok=True))
    async with rig.agent("--run", text, "--answer-within", "1", extensions=[tasks]) as client:
        answer = await client.call_tool("put", {"text": text, "hold": True})
        assert text_of(answer) == f"put {text}"
        assert tasks.seen[0] == "working"
        with pytest.raises(MCPError, match="no such task"):
            await asked(client.session, Ask(method="tasks/get", params={"taskId": "0" * 32}))
    assert len(effects(rig.home, "put", text)) == 1


def test_a_call_is_begun_as_a_task_in_the_version_that_has_them(rig: ProxyRig) -> None:
    text = fresh("begun")
    argv = rig.command("--run", text)
    with subprocess.Popen(argv, cwd=REPOSITORY, env=rig.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        try:
            can = result_of(proxy, **INITIALIZE)["capabilities"]["tasks"]
            said(proxy, method="notifications/initialized")
            listed = result_of(proxy, id=1, method="tools/list")["tools"]
            params = {"name": "issue", "arguments": {"text": text}, "task": {}}
            task = result_of(proxy, id=2, method="tools/call", params=params)["task"]
            of_task = {"taskId": task["taskId"]}
            result = result_of(proxy, id=3, method="tasks/result", params=of_task)
            ended = result_of(proxy, id=4, method="tasks/get", params=of_task)
        finally:
            proxy.kill()
    assert can == {"requests": {"tools": {"call": {}}}}
    assert {tool["execution"]["taskSupport"] for tool in listed} == {"optional"}
    assert result["content"][0]["text"] == f"issue {text}"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == of_task
    assert (ended["status"], ended["taskId"]) == ("completed", task["taskId"])
    assert len(effects(rig.home, "issue", text)) == 1


def said(proxy: "subprocess.Popen[bytes]", **message: Any) -> None:
    """A message to a proxy on stdio."""
    assert proxy.stdin is not None
    proxy.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    proxy.stdin.flush()


def result_of(proxy: "subprocess.Popen[bytes]", **message: Any) -> dict[str, Any]:
    """What is answered."""
    said(proxy, **message)
    assert proxy.stdout is not None
    return json.loads(proxy.stdout.readline())["result"]


class Ask(types.Request[dict[str, Any], str]):
    """Any request."""

    method: str
    params: dict[str, Any]


class Said(types.Result):
    """Any result, as it is."""

    model_config = ConfigDict(extra="allow")


class TaskHandle(types.Result):
    """What is answered in place of a result."""

    result_type: Literal["task"]  # pyright: ignore[reportIncompatibleVariableOverride] - as the SDK asks for it
    task_id: str
    status: str


class Tasks(ClientExtension):
    """A client that takes tasks: once it has one, `begun` is called, and it is polled."""

    identifier = TASKS

    def __init__(self, begun: Callable[[], None]) -> None:
        self.seen: list[str] = []
        self._begun = begun

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._resolve)]

    async def _resolve(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        self.seen.append(handle.status)
        self._begun()
        while True:
            state = await asked(context.session, Ask(method="tasks/get", params={"taskId": handle.task_id}))
            if state["status"] != "working":
                assert state["status"] == "completed"
                return types.CallToolResult.model_validate(state["result"])
            await asyncio.sleep(0.1)


async def asked(session: ClientSession, request: Any) -> dict[str, Any]:
    """What is answered, whatever it is."""
    answer = await session.send_request(request, Said)
    return answer.model_dump(mode="json", by_alias=True)
