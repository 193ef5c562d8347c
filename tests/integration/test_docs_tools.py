"""The example of docs/tools.md loads as it stands there, is found again, and says what it can't know."""

import json
import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from aetheris.sdk import Found, NotFound, ProbeContext, ToolContext, Unknown
from aetheris.sdk.invoke import ask_probe, invoke
from aetheris.sdk.loader import load
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
KEY = "aetheris:job:note:0"
ARGS = {"customer": "ada", "text": "called"}


class Notes(ThreadingHTTPServer):
    """Keeps what is posted, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept: list[dict[str, str]] = []
        self.status = 200


class _Handler(BaseHTTPRequestHandler):
    server: Notes  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        note = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status < 400 or self.server.status >= 500:
            self.server.kept.append({**note, "id": f"n-{len(self.server.kept)}"})
        self._answer(self.server.kept[-1] if self.server.kept else {})

    def do_GET(self) -> None:
        reference = parse_qs(urlsplit(self.path).query)["reference"][0]
        self._answer([note for note in self.server.kept if note["reference"] == reference])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Quiet."""

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(notes: Notes) -> Generator[Notes]:
    with notes:
        thread = threading.Thread(target=notes.serve_forever)
        thread.start()
        try:
            yield notes
        finally:
            notes.shutdown()
            thread.join()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Generator[Notes]:
    with serving(Notes()) as server:
        monkeypatch.setenv("NOTES_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The module that AETHERIS_TOOLS would name."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "noted_in_docs.py").write_text(code[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "noted_in_docs"
    sys.modules.pop("noted_in_docs", None)


def calling() -> ToolContext:
    return ToolContext(KEY, 0, "ab" * 32, "job", "note")


def asking() -> ProbeContext:
    return ProbeContext(KEY, "ab" * 32, "job", "note")


async def test_what_it_did_is_found_again(name: str, notes: Notes) -> None:
    (add_note,) = load(name)
    assert isinstance(await ask_probe(add_note, asking(), 10), NotFound)
    outcome = await invoke(add_note, ARGS, calling())
    assert isinstance(outcome, Succeeded)
    assert notes.kept == [{**ARGS, "reference": KEY, "id": "n-0"}]
    found = await ask_probe(add_note, asking(), 10)
    assert isinstance(found, Found)
    assert (found.result, found.external_id) == (outcome.result, outcome.external_id) == ({"customer": "ada"}, "n-0")


@pytest.mark.parametrize(("status", "means"), [(500, InDoubt), (409, InDoubt), (429, Retryable), (422, Permanent)])
async def test_what_a_status_says(name: str, notes: Notes, status: int, means: type[object]) -> None:
    notes.status = status
    (add_note,) = load(name)
    assert isinstance(await invoke(add_note, ARGS, calling()), means)
    assert isinstance(await ask_probe(add_note, asking(), 10), Unknown)


async def test_its_arguments_are_checked_before_anything_is_sent(name: str, notes: Notes) -> None:
    (add_note,) = load(name)
    assert isinstance(await invoke(add_note, {"customer": "ada"}, calling()), Permanent)
    assert notes.kept == []
