"""An external server that deduplicates nothing and keeps every call that reached it.

    POST /effect {"key", "tag"}   one line is appended to the file: that is the effect; answers {"id", "tag"}
    GET  /effects?key=            the effects with that key, or all of them
    GET  /read?tag=               a read: it has no effect, and is only counted
    POST /v1/chat/completions     a model of OpenAI's protocol, which plays the script that its goal is (model.py)

With `hold=NAME` a call takes effect, and its answer is kept back while a file NAME is in the server's folder: its
caller never learns of it. While that file says `before`, the effect itself is kept back, and a file
NAME.arrived says that the call is there. While it says `refuse`, such a call is answered by 503, and counted as a read
of `refused:TAG`: it has no effect. The server ends with the process that started it.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from aetheris.rigs.chaos.model import completion

LOG = "effects.jsonl"
READS = "reads.jsonl"
BEFORE = "before"
REFUSE = "refuse"
_LOOK_EVERY_S = 0.005


@dataclass(frozen=True)
class ExternalServer:
    """A running server: where it is, its process, and what reached it."""

    url: str
    pid: int
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """What a tool needs to find it."""
        return {"OUTSIDE_URL": self.url}

    def effects(self, key: str | None = None, tag: str | None = None) -> list[dict[str, str]]:
        """The effects in the order in which they were made, read from the file."""
        return [
            effect
            for effect in logged(self.folder / LOG)
            if key in (None, effect["key"]) and tag in (None, effect["tag"])
        ]

    def count(self, tag: str | None = None) -> int:
        """How many effects there are."""
        return len(self.effects(tag=tag))

    def reads(self, tag: str | None = None) -> int:
        """How often somebody read."""
        reads = self.folder / READS
        return sum(tag in (None, read["tag"]) for read in logged(reads)) if reads.exists() else 0

    def hold(self, name: str) -> Path:
        """Keep back the answers of calls with `hold=name`, until the file is removed."""
        held = self.folder / name
        held.touch()
        return held

    def hold_before(self, name: str) -> Path:
        """Keep back the effects of calls with `hold=name`, until the file is removed."""
        held = self.folder / name
        held.write_text(BEFORE)
        return held

    def refuse(self, name: str) -> Path:
        """Answer calls with `hold=name` by 503, until the file is removed."""
        held = self.folder / name
        held.write_text(REFUSE)
        return held

    def wait_arrived(self, name: str, deadline_s: float = 30.0) -> None:
        """Return once a call is there whose effect is kept back.

        Raises:
            TimeoutError: there is none.
        """
        until((self.folder / f"{name}.arrived").exists, deadline_s)

    def wait_for(self, count: int, tag: str | None = None, deadline_s: float = 30.0) -> None:
        """Return once there are that many effects.

        Raises:
            TimeoutError: there are not.
        """
        until(lambda: self.count(tag) >= count, deadline_s)


def until(holds: Callable[[], bool], deadline_s: float) -> None:
    """Return once it holds.

    Raises:
        TimeoutError: it doesn't within the deadline.
    """
    end = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s} s")
        time.sleep(_LOOK_EVERY_S)


@contextmanager
def running_external_server(folder: Path, host: str = "127.0.0.1") -> Generator[ExternalServer]:
    """Run a server on a free port for as long as the block lasts; a second one on the folder goes on with its log."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).touch()
    reported, tell = os.pipe()
    argv = [sys.executable, __file__, str(folder), str(tell), host]
    with (folder / "server.log").open("ab") as log:
        child = subprocess.Popen(argv, pass_fds=[tell], stdin=subprocess.PIPE, stderr=log)
    os.close(tell)
    try:
        with os.fdopen(reported) as port:
            line = port.readline()
        if not line:
            raise RuntimeError(f"the external server ended: see {folder / 'server.log'}")
        yield ExternalServer(f"http://{host}:{int(line)}", child.pid, folder)
    finally:
        child.kill()
        child.communicate()


def logged(log: Path) -> list[dict[str, str]]:
    """The whole lines of the log: one that is being written is no effect yet."""
    lines = log.read_text().split("\n")[:-1]
    return [cast("dict[str, str]", json.loads(line)) for line in lines]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    lock = threading.Lock()
    numbers: Iterator[int]
    answers = count(1)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if urlsplit(self.path).path == "/v1/chat/completions":
            self._answer(completion(body, next(self.answers)))
            return
        self._hold_before()
        held = self._held()
        if held is not None and _says(held, REFUSE):
            self._append(READS, {"tag": f"refused:{body['tag']}"})
            self._answer(None, 503)
            return
        effect = self._take_effect(body)
        self._answer(effect)

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        fields = {name: values[0] for name, values in parse_qs(asked.query).items()}
        key = fields.get("key")
        if asked.path == "/read":
            self._append(READS, {"tag": fields.get("tag", "")})
            self._answer({"read": True})
        else:
            effects = logged(self.folder / LOG)
            self._answer([effect for effect in effects if key in (None, effect["key"])])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Quiet: the effects are the log."""

    def _hold_before(self) -> None:
        held = self._held()
        while held is not None and _says(held, BEFORE):
            held.with_name(f"{held.name}.arrived").touch()
            time.sleep(_LOOK_EVERY_S)

    def _held(self) -> Path | None:
        name = parse_qs(urlsplit(self.path).query).get("hold")
        return self.folder / name[0] if name else None

    def _take_effect(self, body: dict[str, Any]) -> dict[str, str]:
        with self.lock:
            effect = {"key": str(body["key"]), "tag": str(body["tag"]), "id": str(next(self.numbers))}
            effect["at_s"] = f"{time.monotonic():.3f}"
        self._append(LOG, effect)
        return effect

    def _append(self, file: str, line: dict[str, str]) -> None:
        """One write of one line under a lock: that is the effect."""
        with self.lock, (self.folder / file).open("a") as log:
            log.write(json.dumps(line) + "\n")

    def _answer(self, value: Any, status: int = 200) -> None:
        held = self._held()
        while status == 200 and held is not None and held.exists():
            time.sleep(_LOOK_EVERY_S)
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _says(held: Path, what: str) -> bool:
    try:
        return held.read_text() == what
    except FileNotFoundError:
        return False


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024  # a burst of calls must not be reset: that would be a doubt of the server's making


def _serve(folder: Path, tell: int, host: str) -> None:
    _Handler.folder = folder
    _Handler.numbers = count(len(logged(folder / LOG)) + 1)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    server = _Server((host, 0), _Handler)
    os.write(tell, f"{server.server_port}\n".encode())
    os.close(tell)
    server.serve_forever()


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
