"""Issues: created, found again by their marker, commented, closed, confirmed; against a tracker in this process."""

import json
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from aetheris.sdk import Confirmed, Drifted, Failed, Found, NotFound, ProbeContext, StateChange, ToolContext
from aetheris.sdk.toolkits import http, issues

KEY = "aetheris:job-1:n.1:0"
CTX = ToolContext(KEY, 0, "ab" * 32, "job-1", "n.1")
ASK = ProbeContext(KEY, "ab" * 32, "job-1", "n.1")


class Repository:
    """GitHub's issues, as far as they are used here."""

    def __init__(self) -> None:
        self.issues: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, dict[str, Any]] = {}
        self.tokens: set[str | None] = set()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        place = re.fullmatch(r"/api/repos/o/r/issues(?:/(\d+))?(?:/(comments)(?:/(\d+))?|(/comments))?", path)
        comment = re.fullmatch(r"/api/repos/o/r/issues/comments/(\d+)", path)
        if comment:
            found = self.comments.get(int(comment[1]))
            return (200, found) if found else (404, {})
        if path.endswith("/issues/comments"):
            return 200, self._page(self.comments, query)
        assert place, path
        number, below = place[1], place[2]
        if method == "POST" and number is None:
            fresh = len(self.issues) + 1
            made = self.issues[fresh] = {"number": fresh, "state": "open", **body}
            return 201, made
        if method == "POST":
            fresh = len(self.comments) + 100
            made = self.comments[fresh] = {"id": fresh, "issue_url": f"http://x/issues/{number}", **body}
            return 201, made
        if method == "PATCH":
            self.issues[int(number)] |= body
            return 200, self.issues[int(number)]
        if number is None or below:
            return 200, self._page(self.comments if below else self.issues, query)
        found = self.issues.get(int(number))
        return (200, found) if found else (404, {})

    def _page(self, rows: dict[int, Any], query: dict[str, str]) -> list[Any]:
        size, page = 2, int(query["page"])  # fewer than are asked for
        return list(rows.values())[(page - 1) * size : page * size]


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def tracker(repository: Repository) -> Generator[issues.Tracker]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlparse(self.path)
            repository.tokens.add(self.headers.get("authorization"))
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            status, body = repository.answer(self.command, url.path, query, json.loads(raw) if raw else None)
            etag = f'"{hash(json.dumps(body))}"'
            if status == 200 and self.headers.get("if-none-match") == etag:
                status, body = 304, None
            sent = json.dumps(body).encode() if body is not None else b""
            self.send_response(status)
            self.send_header("etag", etag)
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def do_POST(self) -> None:
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base's name
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield issues.Tracker(f"http://127.0.0.1:{server.server_port}/api", "o/r", "secret", http.Guard(private=True))
    server.shutdown()
    server.server_close()


async def test_an_issue_is_found_by_its_marker_on_any_page(tracker: issues.Tracker, repository: Repository) -> None:
    assert isinstance(await issues.find_issue(ASK, tracker), NotFound)
    repository.issues |= {number: {"number": number, "body": "other"} for number in range(1, 6)}
    made = await issues.create(CTX, tracker, "broken", "It is broken.")
    found = await issues.find_issue(ASK, tracker)
    assert isinstance(found, Found)
    assert (found.result, found.external_id) == (made.value, made.external_id) == ({"number": 6}, "6")
    assert [change.resource_id for change in found.changes] == ["6"]
    assert repository.tokens == {"Bearer secret"}
    assert "secret" not in repr(tracker)


async def test_an_issue_that_was_deleted_or_rewritten_has_drifted(
    tracker: issues.Tracker, repository: Repository
) -> None:
    (change,) = (await issues.create(CTX, tracker, "broken", "It is broken.")).changes
    assert await issues.confirm(ASK, tracker, change) == Confirmed(("HTTP 304",))
    repository.issues[1]["title"] = "still broken"
    assert await issues.confirm(ASK, tracker, change) == Confirmed(("its body has the marker",))
    repository.issues[1]["body"] = "rewritten"
    assert isinstance(await issues.confirm(ASK, tracker, change), Drifted)
    del repository.issues[1]
    assert await issues.confirm(ASK, tracker, change) == Drifted({"status": 404})


async def test_comments_and_closing(tracker: issues.Tracker, repository: Repository) -> None:
    await issues.create(CTX, tracker, "broken", "It is broken.")
    (change,) = (await issues.comment(CTX, tracker, 1, "Seen.")).changes
    for number in (1, None):
        found = await issues.find_comment(ASK, tracker, number)
        assert isinstance(found, Found)
        assert (found.result, found.external_id) == ({"issue": 1}, "100")
    assert isinstance(await issues.confirm(ASK, tracker, change), Confirmed)
    (closed,) = (await issues.close(CTX, tracker, 1)).changes
    assert isinstance(await issues.confirm(ASK, tracker, closed), Confirmed)
    repository.issues[1]["state"] = "open"
    assert await issues.confirm(ASK, tracker, closed) == Drifted({"state": {"recorded": "closed", "found": "open"}})


@pytest.mark.parametrize("recorded", ["http://evil.example/", "../../user", "1?x=", "1/../../2", "//evil.example/1"])
async def test_a_recorded_id_sends_no_token_elsewhere(
    tracker: issues.Tracker, repository: Repository, recorded: str
) -> None:
    assert isinstance(await issues.confirm(ASK, tracker, StateChange("issue", recorded, "create")), Drifted)
    assert repository.tokens == set()


async def test_a_text_cannot_bring_the_marker_of_another_call(tracker: issues.Tracker) -> None:
    with pytest.raises(Failed):
        await issues.create(CTX, tracker, "x", issues.marker("aetheris:job-2:n:0"))
