"""A model that is scripted, over Anthropic's Messages protocol, as Claude's own agents ask it: streamed."""

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Mapping[str, Any]
"""{"text": …} or {"tool": name, "input": …}."""
Script = Callable[[Sequence[Mapping[str, Any]], Sequence[str]], Answer]
"""What the model says to a conversation's messages, with the names of the tools that it has."""


@contextmanager
def running_messages(script: Script) -> Generator[str]:
    """The model; gives its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            tools = [str(one["name"]) for one in body.get("tools", ())]
            said = _events(script(body["messages"], tools), str(body["model"]), len(body["messages"]))
            content = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in said).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the framework's name
            """Nothing is said."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is no error."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, name="scripted-messages", daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def results(messages: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str, bool]]:
    """The calls of a conversation that were answered: their arguments, the text that came back, whether an error."""
    parts = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
    called = {part["id"]: part["input"] for part in parts if part["type"] == "tool_use"}
    answered = [part for part in parts if part["type"] == "tool_result"]
    return [(called[one["tool_use_id"]], str(one["content"]), bool(one.get("is_error"))) for one in answered]


def _events(answer: Answer, model: str, number: int) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    about = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    if "tool" in answer:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number}", "name": answer["tool"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer["input"])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer["text"]}
    ends = {"stop_reason": "tool_use" if "tool" in answer else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**about, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
