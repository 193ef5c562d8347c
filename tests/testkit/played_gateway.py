"""A stand-in for the gateway, for what calls tools through it: no service runs."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aetheris.protocol.base.ids import job_id_of

SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["order_id", "amount"],
}
TOOLS: list[dict[str, Any]] = [
    {"name": "refund", "version": "1", "description": "Refund an order.", "schema": SCHEMA},
    {"name": "mail.send", "version": "1", "description": "", "schema": {"type": "object"}, "volatile": ["date"]},
    {"name": "look", "version": "1", "schema": {"type": "object"}, "effect_class": "pure"},
    {"name": "odd", "version": "1", "schema": {"type": "object", "properties": {"repeat_of": {}}}},
]


@dataclass
class PlayedGateway:
    """Takes submissions as the gateway does: one job for each Idempotency-Key; each job is one effect.

    `fails` is how a step of a job that is submitted now ends; None: as a success. `fails_with`: the status and the code
    by which it is not taken.
    """

    url: str
    effects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sessions: set[str] = field(default_factory=set[str])
    fails: dict[str, Any] | None = None
    fails_with: tuple[int, str] | None = None
    released: threading.Event = field(default_factory=threading.Event)
    tools: list[dict[str, Any]] = field(default_factory=lambda: list(TOOLS))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body of the answer."""
        if self.fails_with is not None:
            return self.fails_with[0], _error(self.fails_with[1], "as it is told")
        (node,) = body["plan"]["nodes"]
        if not isinstance(node["args"].get("amount"), int):
            return 400, _error("invalid_plan", "plan.nodes[0].args/amount: must be integer")
        job_id = job_id_of("", key)
        with self.lock:
            self.sessions.add(body["session"])
            if job_id in self.jobs:
                if self.jobs[job_id] != node:
                    return 409, _error("idempotency_conflict", "another request", job_id=job_id)
                return 202, {"job_id": job_id, "status": self.job(job_id)["status"]}
            self.effects.append(node)
            self.jobs[job_id] = node
            if self.fails is not None:
                self.failed[job_id] = self.fails
        return 202, {"job_id": job_id, "status": "pending"}

    def job(self, job_id: str) -> dict[str, Any]:
        """As the API shows it."""
        step = {"node_id": "call", "tool": "refund", "state": "completed"}
        named = {"created_at": "", "submitted_by": "", "tenant": ""}
        shown = {"job_id": job_id, "status": "completed", **named, "steps": [step]}
        if job_id in self.failed:
            return shown | {"status": "failed", "steps": [step | {"state": "failed"} | self.failed[job_id]]}
        return shown | {"result": {"call": {"refunded": self.jobs[job_id]["args"]["amount"]}}}


def _error(code: str, message: str, **details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": details}}


@contextmanager
def running_played_gateway() -> Generator[PlayedGateway]:
    """Up, and down again."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*gateway.submit(str(self.headers["Idempotency-Key"]), body))

        def do_GET(self) -> None:
            if self.path == "/api/tools":
                self._answer(200, {"tools": gateway.tools})
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
                self._answer(404, _error("unknown_job", "no such job"))

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
