"""A stand-in for the gateway: what commands ask it is kept, and answered as a test says."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast


class ScriptedGateway(ThreadingHTTPServer):
    """Answers as it is told, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.story: list[dict[str, Any]] = []

    def sent(self) -> Any:
        """The body of the only request that had one."""
        (body,) = [body for _, _, body, _ in self.asked if body is not None]
        return body


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    methods: ClassVar[tuple[str, ...]] = ("GET", "POST")

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_POST(self) -> None:
        self._answer("POST", json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, method: str, body: Any) -> None:
        gateway = cast("ScriptedGateway", self.server)
        path = self.path.removeprefix("/api").partition("?")[0]
        gateway.asked.append((method, path, body, dict(self.headers.items())))
        if gateway.story and self.headers.get("accept") == "text/event-stream":
            lines = "".join(f"id: {one['seq']}\ndata: {json.dumps(one)}\n\n" for one in gateway.story)
            self._send(200, lines.encode(), "text/event-stream")
            return
        unknown = {"error": {"code": "unknown_job", "message": "there is no such job", "details": {}}}
        status, answer = gateway.answers.get((method, path), (404, unknown))
        self._send(status, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Nobody reads it."""
