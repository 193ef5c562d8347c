"""The README's agent, as it stands there, on a scripted model and a stand-in for the gateway (docs/agents.md)."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ToolFailed

from aetheris.protocol.base.ids import job_id_of
from aetheris.sdk.equal_calls import MOST_TRIES, PersonalTool
from aetheris.sdk.pydantic_ai import LedgeredToolset, NoSuchTool
from aetheris.testing.scripted_model import ScriptedModel, running_model
from tests.testkit.external_server import until
from tests.testkit.pages import readme_agent

README = Path(__file__).parents[3] / "README.md"
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["order_id", "amount"],
}
TOOLS = [
    {"name": "refund", "version": "1", "description": "Refund an order.", "schema": SCHEMA},
    {"name": "mail.send", "version": "1", "description": "", "schema": {"type": "object"}, "volatile": ["date"]},
    {"name": "look", "version": "1", "schema": {"type": "object"}, "effect_class": "pure"},
    {"name": "odd", "version": "1", "schema": {"type": "object", "properties": {"repeat_of": {}}}},
]


@dataclass
class PlayedGateway:
    """Takes submissions as the gateway does: one job for each Idempotency-Key; each job is one effect.

    `fails` is how a step of a job that is submitted now ends; None: as a success.
    """

    url: str
    effects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sessions: set[str] = field(default_factory=set[str])
    fails: dict[str, Any] | None = None
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        (node,) = body["plan"]["nodes"]
        if not isinstance(node["args"].get("amount"), int):
            return 400, error("invalid_plan", "plan.nodes[0].args/amount: must be integer")
        job_id = job_id_of("", key)
        with self.lock:
            self.sessions.add(body["session"])
            if job_id in self.jobs:
                if self.jobs[job_id] != node:
                    return 409, error("idempotency_conflict", "another request", job_id=job_id)
                return 202, {"job_id": job_id, "status": self.job(job_id)["status"]}
            self.effects.append(node)
            self.jobs[job_id] = node
            if self.fails is not None:
                self.failed[job_id] = self.fails
        return 202, {"job_id": job_id, "status": "pending"}

    def job(self, job_id: str) -> dict[str, Any]:
        step = {"node_id": "call", "tool": "refund", "state": "completed"}
        named = {"created_at": "", "submitted_by": "", "tenant": ""}
        shown = {"job_id": job_id, "status": "completed", **named, "steps": [step]}
        if job_id in self.failed:
            return shown | {"status": "failed", "steps": [step | {"state": "failed"} | self.failed[job_id]]}
        return shown | {"result": {"call": {"refunded": self.jobs[job_id]["args"]["amount"]}}}


def error(code: str, message: str, **details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": details}}


@contextmanager
def running_gateway() -> Generator[PlayedGateway]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*gateway.submit(str(self.headers["Idempotency-Key"]), body))

        def do_GET(self) -> None:
            if self.path == "/api/tools":
                self._answer(200, {"tools": TOOLS})
            elif "/events" in self.path:
                gateway.released.wait(30)
                event = {
                    "seq": 1,
                    "id": "e",
                    "type": "job_completed",
                    "time": "",
                    "subject": "",
                    "offset": 1,
                    "data": {},
                }
                self._send(200, f"data: {json.dumps(event)}\n\n".encode())
            elif (job_id := self.path.rpartition("/")[2]) in gateway.jobs:
                self._answer(200, gateway.job(job_id))
            else:
                self._answer(404, error("unknown_job", "no such job"))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Quiet."""

        def _answer(self, status: int, value: Any) -> None:
            self._send(status, json.dumps(value).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    gateway = PlayedGateway(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        gateway.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def call(amount: Any = 5) -> dict[str, Any]:
    return {"calls": [{"tool": "refund", "args": {"order_id": "o", "amount": amount}}]}


DONE = {"text": "It is done."}
SCRIPT = {
    "Refund order o-1.": [call(), DONE],
    "Refund order o-2.": [call(), call(), DONE],
    "Refund order o-3.": [call("much"), call(), DONE],
    "Refund order o-4.": [call(), DONE],
}


@dataclass(frozen=True)
class ReadmeAgent:
    """The agent of the README, on a gateway and a model that are played."""

    gateway: PlayedGateway
    model: ScriptedModel
    env: dict[str, str]
    script: Path

    def start(self, order: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(self.script), order]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    def run(self, order: str) -> None:
        with self.start(order) as agent:
            out, errors = agent.communicate(timeout=60)
        assert (agent.returncode, out.strip()) == (0, "It is done."), errors


@pytest.fixture
def readme(tmp_path: Path) -> Generator[ReadmeAgent]:
    script = tmp_path / "agent.py"
    script.write_text(f"{readme_agent()}\n\nimport asyncio, sys\nprint(asyncio.run(settle(sys.argv[1])))\n")
    with running_gateway() as gateway, running_model(SCRIPT) as (model, url):
        env = {
            **os.environ,
            "AETHERIS_URL": gateway.url,
            "AETHERIS_TOKEN": "t",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        yield ReadmeAgent(gateway, model, env, script)


def test_what_an_agent_has_done_is_not_done_again(readme: ReadmeAgent) -> None:
    with readme.start("o-1") as agent:
        until(lambda: len(readme.gateway.effects) == 1, 30)
        agent.kill()
    readme.gateway.released.set()
    readme.run("o-1")
    assert len(readme.gateway.effects) == 1
    assert readme.gateway.sessions == {"refund o-1"}
    assert readme.model.calls_for("Refund order o-1.") == [0, 0, 1]
    readme.run("o-2")
    readme.run("o-2")
    assert [one["occurrence"] for one in readme.gateway.effects] == [1, 1], "what a model says again is no second call"


def test_a_model_is_told_what_came_of_its_call(readme: ReadmeAgent) -> None:
    readme.gateway.released.set()
    readme.run("o-3")
    assert len(readme.gateway.effects) == 1
    reported = {request.turn: str(request.body["messages"][-1]) for request in readme.model.requests}
    assert "refused, and nothing was called" in reported[1]
    assert "args/amount" in reported[1]
    assert "refunded" in reported[2]
    (shown,) = readme.model.requests[0].body["tools"]
    assert shown["function"]["description"] == "Refund an order."
    readme.gateway.fails = {"state": "failed", "reason": "no try is left", "effect": "possible"}
    readme.run("o-4")
    assert "no try is left. Nobody knows whether it took effect." in str(readme.model.requests[-1].body["messages"][-1])


async def test_only_what_is_asked_for_is_shown_under_names_that_providers_take() -> None:
    with running_gateway() as gateway:
        every = ["refund", "mail_send", "look", "odd"]
        for patterns, shown in ((["mail.*"], ["mail_send"]), ([], []), (["*"], every)):
            async with LedgeredToolset(patterns, run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
                assert list(await tools.get_tools(None)) == shown  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="run_id is empty"):
        await LedgeredToolset(["*"], run_id=lambda _: "").for_run(None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"tools": ["refund", "refnd"]}, "tools: no tool refnd is there; did you mean refund?"),
        ({"tools": ["nothing"]}, "tools: no tool nothing is there; there are look, mail.send, odd, refund"),
        ({"tools": ["shop.*"]}, r"tools: no tool shop.* is there; there are look"),
        ({"tools": ["refund"], "repeats": ["refnud"]}, "repeats: no tool refnud is there; did you mean refund?"),
        ({"tools": ["look"], "repeats": ["refund"]}, "repeats: no tool refund is there; there are look"),
    ],
)
async def test_a_tool_that_does_not_exist_is_named_before_anything_is_called(
    gateway: PlayedGateway, named: dict[str, Any], text: str
) -> None:
    async with LedgeredToolset(**named, run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
        with pytest.raises(NoSuchTool, match=re.escape(text)):
            await tools.get_tools(None)  # pyright: ignore[reportArgumentType]
    assert gateway.effects == []


async def test_a_tool_with_personal_arguments_is_refused_by_name_before_a_model_sees_it(
    gateway: PlayedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    email = {"type": "string", "x-personal": "/who"}
    schema = {"type": "object", "properties": {"who": {"type": "string"}, "email": email}}
    items = {"type": "object", "properties": {"all": {"type": "array", "items": email}}}
    for personal in (schema, items):
        monkeypatch.setattr(sys.modules[__name__], "TOOLS", [*TOOLS[:2], {"name": "mail.invite", "schema": personal}])
        async with LedgeredToolset(["mail.*"], run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
            with pytest.raises(PersonalTool, match=r"mail\.invite: x-personal isn't served"):
                await tools.get_tools(None)  # pyright: ignore[reportArgumentType]
    assert gateway.effects == []


def test_an_agent_whose_tool_does_not_exist_asks_no_model(readme: ReadmeAgent) -> None:
    readme.script.write_text(readme.script.read_text().replace('"refund"', '"refnud"'))
    with readme.start("o-1") as agent:
        _, errors = agent.communicate(timeout=60)
    assert (agent.returncode, "did you mean refund?" in errors) == (1, True)
    assert (readme.model.requests, readme.gateway.effects) == ([], [])


class AgentRun:
    """A run of an agent: what its model calls."""

    def __init__(self, gateway: PlayedGateway, **how: Any) -> None:
        self.tools = LedgeredToolset(["*"], run_id="r", url=gateway.url, token="t", **how)  # noqa: S106

    async def __aenter__(self) -> "AgentRun":
        await self.tools.__aenter__()
        self.shown = await self.tools.get_tools(None)  # pyright: ignore[reportArgumentType]
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.tools.__aexit__(*error)

    async def call(self, tool: str = "refund", **args: Any) -> Any:
        """What the model is given, or told of a failure."""
        try:
            return await self.tools.call_tool(tool, {"amount": 5} | args, None, self.shown[tool])  # pyright: ignore[reportArgumentType]
        except ToolFailed as failed:
            return failed.message


@pytest.fixture
def gateway() -> Generator[PlayedGateway]:
    with running_gateway() as running:
        running.released.set()
        yield running


SURELY: dict[str, Any] = {"reason": "refused", "effect": "none"}
UNSURE: dict[str, Any] = {"reason": "no try is left", "effect": "possible", "via": "ledger"}


async def test_an_equal_call_joins_and_only_a_sure_failure_lets_it_be_made_again(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway) as run:
        gateway.fails = SURELY
        assert "may be called again" in await run.call()
        gateway.fails = None
        assert await run.call() == await run.call() == {"refunded": 5}
        assert len(gateway.effects) == 2
        gateway.fails = UNSURE
        for _ in range(3):
            assert "A human decides" in await run.call(order_id="unsure")
        gateway.fails = {"reason": "took effect in part", "effect": "confirmed", "via": "executor"}
        for _ in range(2):
            assert "a part of it" in await run.call(order_id="part")
        gateway.fails = UNSURE | {"via": "human"}
        assert "may be called again" in await run.call(order_id="looked into")
        gateway.fails = None
        assert await run.call(order_id="looked into") == {"refunded": 5}
    made = len(gateway.effects)
    async with AgentRun(gateway) as run:
        assert await run.call() == {"refunded": 5}, "the run that starts again finds what it did"
        assert "A human decides" in await run.call(order_id="unsure")
    assert (made, len(gateway.effects)) == (6, 6)


async def test_a_call_that_always_fails_is_not_made_without_end(gateway: PlayedGateway) -> None:
    gateway.fails = SURELY
    async with AgentRun(gateway) as run:
        reported = [await run.call() for _ in range(MOST_TRIES + 3)]
    assert len(gateway.effects) == MOST_TRIES
    assert [one for one in reported if "not made again" in one] == reported[MOST_TRIES:]


async def test_what_a_tool_does_not_look_at_makes_no_other_call(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway) as run:
        first = await run.call("mail_send", to="a", date="monday")
        assert await run.call("mail_send", to="a", date="tuesday") == first
        assert await run.call("mail_send", date="sunday", to="a") == first
        await run.call("mail_send", to="b", date="monday")
    assert len(gateway.effects) == 2


async def test_what_only_reads_is_read_anew_and_found_again_in_its_order(gateway: PlayedGateway) -> None:
    for _ in range(2):
        async with AgentRun(gateway) as run:
            for _ in range(MOST_TRIES + 2):
                assert await run.call("look") == {"refunded": 5}
    assert len(gateway.effects) == MOST_TRIES + 2


async def test_a_repeat_names_the_call_that_it_repeats(gateway: PlayedGateway) -> None:
    async with AgentRun(gateway, repeats=["refund"]) as run:
        assert "repeat_of" in run.shown["refund"].tool_def.parameters_json_schema["properties"]
        assert "repeat_of" not in str(run.shown["mail_send"].tool_def.parameters_json_schema)
        for habit in (True, "x", "again", 1, ["x"], {"id": "x"}):
            with pytest.raises(ModelRetry, match="nothing was called"):
                await run.call(repeat_of=habit)
        assert gateway.effects == []
        assert await run.call(repeat_of=None) == {"refunded": 5}
        again = await run.call(repeat_of="")
        assert (again["result"], len(gateway.effects)) == ({"refunded": 5}, 1)
        other = await run.call(order_id="other")
        assert other == {"refunded": 5}
        with pytest.raises(ModelRetry, match="nothing was called"):
            await run.call(order_id="other", repeat_of=again["call_id"])
        assert await run.call(repeat_of=again["call_id"]) == {"refunded": 5}
        second = await run.call(repeat_of=again["call_id"])
        assert second["call_id"] != again["call_id"]
        assert (await run.call())["call_id"] == again["call_id"]
        gateway.fails = SURELY
        assert "may be called again" in await run.call(repeat_of=second["call_id"])
        gateway.fails = None
        assert await run.call(repeat_of=second["call_id"]) == {"refunded": 5}
    async with AgentRun(gateway, repeats=["refund"]) as run:
        third = await run.call(repeat_of=second["call_id"])
        assert "call_id" in third, "a run that starts again repeats nothing once more"
        assert await run.call(repeat_of=third["call_id"]) == {"refunded": 5}
    assert [one["occurrence"] for one in gateway.effects if "order_id" not in one["args"]] == [1, 2, 3, 3, 4]


async def test_a_tool_with_an_argument_of_that_name_may_not_repeat(gateway: PlayedGateway) -> None:
    with pytest.raises(ValueError, match="odd has an argument repeat_of of its own"):
        await AgentRun(gateway, repeats=["odd"]).__aenter__()
    async with AgentRun(gateway) as run:
        await run.call("odd", repeat_of=True)
    assert gateway.effects[0]["args"] == {"amount": 5, "repeat_of": True}
