"""Hostile URLs and answers: refused before a byte is sent, or read no further than is allowed."""

import gzip
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from aetheris.sdk import Confirmed, Drifted, Failed, NotExecuted, ProbeContext, StateChange, ToolContext, tool
from aetheris.sdk.invoke import invoke
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable
from aetheris.sdk.toolkits import http
from aetheris.sdk.toolkits.guard import BodyTooLarge, Guard, is_public

CTX = ToolContext("aetheris:job-1:n.1:0", 0, "ab" * 32, "job-1", "n.1")
ASK = ProbeContext("aetheris:job-1:n.1:0", "ab" * 32, "job-1", "n.1")
HERE = Guard(private=True, largest=1_000_000)
NAMES = {
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["93.184.215.14", "127.0.0.1"],
    "meta.example": ["169.254.169.254"],
    "six.example": ["::1"],
    "public.example": ["93.184.215.14"],
}

HOSTILE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fd00::1]/",
    "http://[fe80::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[::]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[fec0::1]/",
    "http://[2600::5efe:10.0.0.1]/",
    "http://[fe80::1%25eth0]/",
    "http://0/",
    "http://127.0.0.1./",
    "http://localhost./",
    "http://127\u30020\u30020\u30021/",
    "http://192.0.0.8/",
    "http://224.0.0.1/",
    "http://inside.example/",
    "http://mixed.example/",
    "http://meta.example/",
    "http://six.example/",
    "http://user:password@public.example/",
    "file:///etc/passwd",
    "gopher://public.example/_x",
    "http:///nowhere",
]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in NAMES:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in NAMES[name]]
        return real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_is_never_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(_self: Any, request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"sent to {request.url.host}")

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", sent)
    with pytest.raises((Failed, NotExecuted)):
        await http.call(CTX, "POST", url, json={})
    with pytest.raises((Failed, httpx.HTTPError, httpx.InvalidURL)):
        await http.read(CTX, url)


@pytest.mark.usefixtures("names")
async def test_the_address_that_was_judged_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(_self: Any, request: httpx.Request) -> httpx.Response:
        assert request.url.host == "93.184.215.14"
        assert (request.headers["host"], request.extensions["sni_hostname"]) == ("public.example", "public.example")
        return httpx.Response(200, json={"asked": True})

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", sent)
    assert await http.read(CTX, "https://public.example/x") == {"asked": True}


@pytest.mark.parametrize(
    "url", ["http://evil.example/", "http://public.example.evil.example/", "http://ublic.example/"]
)
async def test_only_named_hosts_are_asked(url: str) -> None:
    with pytest.raises(Failed):
        await http.call(CTX, "GET", url, guard=Guard(hosts=("public.example", "*.api.example")))


def test_addresses() -> None:
    assert is_public("93.184.215.14")
    assert is_public("2606:4700::1111")
    assert is_public("2600::5efe:5db8:d80e")
    for special in (
        "fe80::1%eth0",
        "3fff::1",
        "5f00::1",
        "100::1",
        "2001:10::1",
        "64:ff9b:1::5db8:d80e",
        "192.88.99.1",
    ):
        assert not is_public(special), special


@pytest.fixture
def server() -> Generator[Callable[[Callable[[BaseHTTPRequestHandler], None]], str]]:
    running: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base's name
                """Silent."""

        made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(made)
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{made.server_port}"

    yield start
    for made in running:
        made.shutdown()
        made.server_close()


def says(status: int, body: bytes = b"{}", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"x" * 2_000_000, {}), (gzip.compress(b"x" * 50_000_000), {"content_encoding": "gzip"})],
)
async def test_a_giant_answer_is_not_read(server: Any, body: bytes, headers: dict[str, str]) -> None:
    url = server(says(200, body, **headers))
    with pytest.raises(BodyTooLarge):
        await http.call(CTX, "POST", url, json={}, guard=HERE)
    with pytest.raises(BodyTooLarge):
        await http.read(CTX, url, guard=HERE)


async def test_a_body_that_comes_byte_by_byte_ends_with_the_tools_time(server: Any) -> None:
    over = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-length", "1000000")
        request.end_headers()
        with suppress(OSError):
            while not over.wait(0.02):
                request.wfile.write(b"x")
                request.wfile.flush()

    url = server(drip)

    @tool("drip", timeout_s=0.5, effect_class="opaque", irreversible=False)
    async def dripped(ctx: ToolContext) -> Any:
        return (await http.call(ctx, "POST", url, json={}, guard=HERE)).text

    try:
        assert await invoke(dripped, {}, CTX) == InDoubt("TimeoutError")
    finally:
        over.set()


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("url", HOSTILE)
async def test_what_is_recorded_of_a_refusal_tells_nothing(url: str) -> None:
    @tool("fetch", effect_class="opaque", irreversible=False)
    async def fetch(ctx: ToolContext, address: str) -> Any:
        return (await http.call(ctx, "POST", address, json={"k": "hunter2"}, headers={"X-Key": "hunter2"})).text

    outcome = await invoke(fetch, {"address": url}, CTX)
    assert isinstance(outcome, Permanent | Retryable), outcome
    assert outcome.reason.startswith(("refused: ", "nothing was sent: "))
    assert "hunter2" not in outcome.reason
    assert "password" not in outcome.reason.removeprefix("refused: a URL that carries a password")
    assert not any(part in outcome.reason for part in ("127", "10.0", "passwd", ".example", "::"))


async def test_a_name_that_resolves_elsewhere_after_a_redirect_is_judged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(["93.184.215.14", "169.254.169.254"])
    asked: list[str] = []

    def resolve(_host: Any, port: Any, *_rest: Any, **_more: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    async def sent(_self: Any, request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"location": "/latest/meta-data/"}, request=request)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", sent)
    with pytest.raises(Failed, match="not public"):
        await http.read(CTX, "http://rebinding.example/")
    assert asked == ["93.184.215.14"]


async def test_a_refusal_with_a_giant_body_is_a_refusal(server: Any) -> None:
    with pytest.raises(Failed):
        await http.call(CTX, "POST", server(says(422, b"x" * 2_000_000)), json={}, guard=HERE)


async def test_a_redirect_leads_to_no_other_origin(server: Any) -> None:
    secret = server(says(200, b'{"secret":true}'))
    lure = server(says(302, location=secret))
    with pytest.raises(http.UnclearResponse):
        await http.read(CTX, lure, guard=HERE, headers={"X-Token": "t"})
    with pytest.raises(http.UnclearResponse):
        await http.call(CTX, "POST", lure, json={}, guard=HERE)


async def test_a_redirect_within_the_origin_is_followed_a_few_times(server: Any) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        says(200)(request) if request.path == "/there" else says(302, location="/there")(request)

    def round_and_round(request: BaseHTTPRequestHandler) -> None:
        says(302, location="/again")(request)

    assert await http.read(CTX, server(answer), guard=HERE) == {}
    with pytest.raises(http.UnclearResponse):
        await http.read(CTX, server(round_and_round), guard=HERE)


async def test_a_resource_is_confirmed_by_status_etag_and_fields(server: Any) -> None:
    made = StateChange("note", "n1", "create", etag='"1"')
    there = server(says(200, b'{"state":"open"}', etag='"1"'))
    gone = server(says(404))
    assert isinstance(await http.confirm(ASK, there, made, fields={"state": "open"}, guard=HERE), Confirmed)
    assert await http.confirm(ASK, there, made, fields={"state": "closed"}, guard=HERE) == Drifted(
        {"state": {"recorded": "closed", "found": "open"}}
    )
    assert await http.confirm(ASK, gone, made, guard=HERE) == Drifted({"status": 404})
    assert isinstance(await http.confirm(ASK, gone, StateChange("note", "n1", "delete"), guard=HERE), Confirmed)
    changed = await http.confirm(ASK, there, StateChange("note", "n1", "create", etag='"0"'), guard=HERE)
    assert isinstance(changed, Drifted)


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_recorded_id_names_no_other_place(name: str) -> None:
    with pytest.raises(Failed):
        http.below("https://api.example", "notes", name)
    assert (
        http.below("https://api.example/", "a/../b?x=http://evil")
        == "https://api.example/a%2F..%2Fb%3Fx%3Dhttp%3A%2F%2Fevil"
    )
