"""The README's agent, as it stands there, on a scripted model and a stand-in for the gateway (docs/agents.md)."""

import hashlib
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

from aetheris.sdk.pydantic_ai import LedgeredToolset
from aetheris.testkit.scripted_model import ScriptedModel, running_model
from tests.outside import until

README = Path(__file__).parents[2] / "README.md"
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["order_id", "amount"],
}
TOOLS = [
    {"name": "refund", "version": "1", "description": "Refund an order.", "schema": SCHEMA},
    {"name": "mail.send", "version": "1", "description": "", "schema": {"type": "object"}},
]


@dataclass
class Gateway:
    """Takes submissions as the gateway does: one job for each Idempotency-Key; each job is one effect."""

    url: str
    effects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sessions: set[str] = field(default_factory=set[str])
    fails: dict[str, Any] | None = None
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, key: str, body: dict[str, Any]) -> str | None:
        (node,) = body["plan"]["nodes"]
        if not isinstance(node["args"].get("amount"), int):
            return None
        job_id = "j-" + hashlib.sha256(key.encode()).hexdigest()[:12]
        with self.lock:
            self.sessions.add(body["session"])
            if job_id not in self.jobs:
                self.effects.append(node)
                self.jobs[job_id] = node
        return job_id

    def job(self, job_id: str) -> dict[str, Any]:
        step = {"node_id": "call", "tool": "refund", "state": "completed"}
        named = {"created_at": "", "submitted_by": "", "tenant": ""}
        shown = {"job_id": job_id, "status": "completed", **named, "steps": [step]}
        if self.fails is not None:
            return shown | {"status": "failed", "steps": [step | self.fails]}
        return shown | {"result": {"call": {"refunded": self.jobs[job_id]["args"]["amount"]}}}


@contextmanager
def running_gateway() -> Generator[Gateway]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            job_id = gateway.submit(str(self.headers["Idempotency-Key"]), body)
            if job_id is None:
                error = {"code": "invalid_plan", "message": "plan.nodes[0].args/amount: must be integer", "details": {}}
                self._answer(400, {"error": error})
            else:
                self._answer(202, {"job_id": job_id, "status": "pending"})

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
            else:
                self._answer(200, gateway.job(self.path.rpartition("/")[2]))

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
    gateway = Gateway(f"http://127.0.0.1:{server.server_port}")
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
class World:
    gateway: Gateway
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
def world(tmp_path: Path) -> Generator[World]:
    (block,) = re.findall(r"## Keep your agent.*?```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    script = tmp_path / "agent.py"
    script.write_text(f"{block}\n\nimport asyncio, sys\nprint(asyncio.run(settle(sys.argv[1])))\n")
    with running_gateway() as gateway, running_model(SCRIPT) as (model, url):
        env = {
            **os.environ,
            "AETHERIS_URL": gateway.url,
            "AETHERIS_TOKEN": "t",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        yield World(gateway, model, env, script)


def test_what_an_agent_has_done_is_not_done_again(world: World) -> None:
    with world.start("o-1") as agent:
        until(lambda: len(world.gateway.effects) == 1, 30)
        agent.kill()
    world.gateway.released.set()
    world.run("o-1")
    assert len(world.gateway.effects) == 1
    assert world.gateway.sessions == {"refund o-1"}
    assert world.model.calls_for("Refund order o-1.") == [0, 0, 1]
    world.run("o-2")
    world.run("o-2")
    assert [one["occurrence"] for one in world.gateway.effects] == [1, 1, 2], "the same twice in a run is meant twice"


def test_a_model_is_told_what_came_of_its_call(world: World) -> None:
    world.gateway.released.set()
    world.run("o-3")
    assert len(world.gateway.effects) == 1
    told = {request.turn: str(request.body["messages"][-1]) for request in world.model.requests}
    assert "refused, and nothing was called" in told[1]
    assert "args/amount" in told[1]
    assert "refunded" in told[2]
    (shown,) = world.model.requests[0].body["tools"]
    assert shown["function"]["description"] == "Refund an order."
    world.gateway.fails = {"state": "failed", "reason": "no try is left", "effect": "possible"}
    world.run("o-4")
    assert "no try is left. Nobody knows whether it took effect." in str(world.model.requests[-1].body["messages"][-1])


async def test_only_what_is_asked_for_is_shown_under_names_that_providers_take() -> None:
    with running_gateway() as gateway:
        for patterns, shown in ((["mail.*"], ["mail_send"]), ([], []), (["*"], ["refund", "mail_send"])):
            async with LedgeredToolset(patterns, run_id="r", url=gateway.url, token="t") as tools:  # noqa: S106
                assert list(await tools.get_tools(None)) == shown  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="run_id is empty"):
        await LedgeredToolset(["*"], run_id=lambda _: "").for_run(None)  # pyright: ignore[reportArgumentType]
