"""A model that plays recorded answers, over OpenAI's protocol: the real client asks it, and it counts.

    python -m aetheris.testing.scripted_model script.json --models models.toml

It takes a free port, unless `--port` names one, and writes the file of models that names it (docs/models.md).

A script is {goal: [answer, …]}; the goal "*" is for all others. An answer is

    {"text": "…", "calls": [{"tool": "lookup", "args": {…}}]}     args may be text, as it is to be sent
    {"status": 503}                                               refused
    {"body": "…"}                                                 sent as it is, with 200

and may have `delay_s`. Which one is played follows from the request alone: answer number n to the request that holds n
earlier answers. So a request that is repeated gets the same answer again.
"""

import argparse
import json
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

Script = Mapping[str, Sequence[Mapping[str, Any]]]

ANY = "*"
AFTER_THE_SCRIPT: Mapping[str, Any] = {"text": "There is nothing left to do."}
_CHARS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model was asked: for which goal, after how many answers, and the messages."""

    goal: str
    turn: int
    body: Mapping[str, Any]


@dataclass
class ScriptedModel:
    """Plays a script; `requests` are those that came, in order."""

    script: Script
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    def calls_for(self, goal: str) -> list[int]:
        """The turns that it was asked for under a goal, in order; one that is asked again stands twice."""
        return [request.turn for request in self.requests if request.goal == goal]

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the script says to a request."""
        messages = cast("list[dict[str, Any]]", body.get("messages", []))
        goal = next((_said(one["content"]) for one in messages if one["role"] == "user"), "")
        turn = sum(1 for one in messages if one["role"] == "assistant")
        with self._lock:
            self.requests.append(ModelRequest(goal, turn, body))
        answers = self.script.get(goal, self.script.get(ANY, ()))
        return answers[turn] if turn < len(answers) else AFTER_THE_SCRIPT


def completion(answer: Mapping[str, Any], body: Mapping[str, Any], number: int) -> bytes:
    """The response of OpenAI's chat completions; ids differ each time, as a provider's do."""
    if "body" in answer:
        return str(answer["body"]).encode()
    calls = [
        {
            "id": f"call-{number}-{place}",
            "type": "function",
            "function": {"name": call["tool"], "arguments": _text(call.get("args", {}))},
        }
        for place, call in enumerate(answer.get("calls", ()))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.get("text")}
    if calls:
        message["tool_calls"] = calls
    asked, reported = len(json.dumps(body)) // _CHARS_A_TOKEN, len(json.dumps(message)) // _CHARS_A_TOKEN
    whole = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "scripted"),
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": asked, "completion_tokens": reported, "total_tokens": asked + reported},
    }
    return json.dumps(whole).encode()


@contextmanager
def running_model(script: Script, port: int = 0) -> Generator[tuple[ScriptedModel, str]]:
    """The model, and the base_url that clients ask it at."""
    model = ScriptedModel(script)
    with _server(model, port) as server:
        threading.Thread(target=server.serve_forever, name="scripted-model", daemon=True).start()
        try:
            yield model, f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()


def _server(model: ScriptedModel, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = model.answer(body)
            time.sleep(float(answer.get("delay_s", 0)))
            if "status" in answer:
                self._send(int(answer["status"]), b'{"error": {"message": "as the script says"}}')
            else:
                self._send(200, completion(answer, body, model.calls))

        def do_GET(self) -> None:
            self._send(200, json.dumps([[one.goal, one.turn] for one in model.requests]).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the framework's name
            """Nothing is said."""

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is no error."""

    return Server(("127.0.0.1", port), Handler)


def _said(content: Any) -> str:
    """The text of a message, whether it is sent in parts or not."""
    if not isinstance(content, list):
        return str(content)
    return "".join(str(part.get("text", "")) for part in cast("list[dict[str, Any]]", content))


def _text(args: Any) -> str:
    return args if isinstance(args, str) else json.dumps(args)


def main() -> None:
    """Serve until killed; GET lists what was asked, as [goal, turn]."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="a free one, if none is named")
    parser.add_argument("--models", type=Path, help="where to write the file of models that names this one")
    given = parser.parse_args()
    with _server(ScriptedModel(json.loads(given.script.read_text())), given.port) as server:
        if given.models is not None:
            _write(given.models, f"http://127.0.0.1:{server.server_address[1]}/v1")
        server.serve_forever()


def _write(models: Path, url: str) -> None:
    """Whole or not at all: somebody waits for it."""
    part = models.with_suffix(".part")
    part.write_text(f'[[models]]\nname = "scripted"\nmodel = "openai-chat:scripted"\nbase_url = "{url}"\n')
    part.replace(models)


if __name__ == "__main__":
    main()
