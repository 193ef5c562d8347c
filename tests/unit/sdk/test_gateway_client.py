"""The client: what errors become, and streams that go on where a connection broke."""

import json
import time
from collections.abc import Callable

import httpx
import pytest

from aetheris.sdk.client import (
    ApiError,
    AsyncClient,
    BadRequest,
    Client,
    Conflict,
    Forbidden,
    ResourceNotFound,
    Unauthorized,
    Unreachable,
    event_walk,
)

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer) -> Client:
    return Client("http://gateway/", "token", transport=httpx.MockTransport(answer))


def event(seq: int, kind: str = "node_finished") -> str:
    body = {"seq": seq, "id": f"e{seq}", "type": kind, "time": "", "subject": "", "offset": seq, "data": {}}
    return f"event: x\nid: {seq}\ndata: {json.dumps(body)}\n\n"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (404, ResourceNotFound),
        (409, Conflict),
        (503, Unreachable),
        (500, ApiError),
    ],
)
def test_errors_are_typed(status: int, kind: type[ApiError]) -> None:
    body = {"error": {"code": "c", "message": "m", "details": {"field": "plan", "retry_after_s": 2}}}
    with client(lambda _: httpx.Response(status, json=body)) as api, pytest.raises(ApiError) as raised:
        api.tools()
    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.field, str(raised.value)) == ("c", "plan", "m")


def test_no_connection_is_unreachable() -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with client(refuse) as api, pytest.raises(Unreachable):
        api.job("j")


def test_what_is_no_gateway_is_said_so() -> None:
    with client(lambda _: httpx.Response(200, text="<html>")) as api, pytest.raises(ApiError, match="gateway"):
        api.job("j")


def test_requests_are_as_the_api_wants_them() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json={"job_id": "j", "status": "submitted"})

    with client(answer) as api:
        assert api.submit({"nodes": []}, agent="a", idempotency_key="k").job_id == "j"
    assert seen[0].url == "http://gateway/api/jobs"
    assert seen[0].headers["authorization"] == "Bearer token"
    assert seen[0].headers["idempotency-key"] == "k"
    assert json.loads(seen[0].content) == {"plan": {"nodes": []}, "agent": "a"}


async def test_who_waits_says_so_and_is_patient() -> None:
    seen: list[tuple[str, str | None, float]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, request.headers.get("prefer"), request.extensions["timeout"]["read"]))
        named = {"created_at": "", "submitted_by": "", "tenant": ""}
        return httpx.Response(200, json={"job_id": "j", "status": "completed", **named})

    with client(answer) as api:
        assert api.submit({"nodes": []}, wait_s=50).ended
        assert api.job("j", wait_s=50).ended
    async with AsyncClient("http://gateway", "token", transport=httpx.MockTransport(answer)) as waiting:
        assert (await waiting.submit({"nodes": []}, wait_s=50)).ended
        assert (await waiting.job("j", wait_s=50)).ended
        assert (await waiting.job("j")).ended
    assert seen == [("POST", "wait=50", 80.0), ("GET", "wait=50", 80.0)] * 2 + [("GET", None, 30.0)]


async def test_one_step_is_cancelled_by_both_clients() -> None:
    seen: list[tuple[str, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.content))
        return httpx.Response(200, json={"job_id": "j", "event": "invocation_rejected"})

    with client(answer) as api:
        assert api.cancel_contract("j", "x", reason="enough").event == "invocation_rejected"
    async with AsyncClient("http://gateway", "token", transport=httpx.MockTransport(answer)) as waiting:
        await waiting.cancel_contract("j", "x", reason="enough")
    assert seen == [("http://gateway/api/jobs/j/contracts/x/cancel", b'{"reason": "enough"}')] * 2


PARTS = [
    ": stream\n\n" + event(1, "job_created") + event(2),
    event(2) + event(3) + "id: 4\ndata: {",
    "",
    ": alive\n\n" + event(4, "job_completed") + event(5),
]


def in_parts(asked: list[str]) -> Answer:
    """Each connection breaks off after its part, and the second one repeats an event."""
    parts = iter(PARTS)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        return httpx.Response(200, text=next(parts), headers={"content-type": "text/event-stream"})

    return answer


def test_a_stream_goes_on_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_walk, "PAUSE_S", 0.0)
    asked: list[str] = []
    with client(in_parts(asked)) as api:
        assert [one.seq for one in api.follow("j")] == [1, 2, 3, 4]
    assert asked == ["0", "2", "3", "3"]


async def test_so_does_the_async_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_walk, "PAUSE_S", 0.0)
    asked: list[str] = []
    async with AsyncClient("http://gateway", "token", transport=httpx.MockTransport(in_parts(asked))) as api:
        assert [one.seq async for one in api.follow("j", after=1)] == [2, 3, 4]
    assert asked == ["1", "2", "3", "3"]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    """Line ends are those of event streams: a text may hold what others take for one."""
    text = "line\u2028separator\x85é"
    first = json.dumps({**json.loads(event(1).split("data: ")[1]), "data": {"said": text}}, ensure_ascii=False)
    move = 'event: execution_state\ndata: {"seq": 2}\n\n'
    streamed = (
        f": stream\nretry: 1000\n\ndata: {first}\r\n\r\n{move}{event(2)}: alive\n\n{event(3, 'job_failed')}{event(4)}"
    )
    raw = streamed.encode()

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=(raw[at : at + size] for at in range(0, len(raw), size)))

    with client(answer) as api:
        found = list(api.follow("j"))
    assert [one.seq for one in found] == [1, 2, 3]
    assert found[0].data == {"said": text}


def test_a_line_in_many_parts_is_put_together_once() -> None:
    """32 MiB in parts of 1 KiB: where each part copied what came before it, that would take minutes."""
    body = json.loads(event(1, "job_completed").split("data: ")[1])
    raw = b"data: " + json.dumps({**body, "data": "x" * 2**25}).encode() + b"\n\n"

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=(raw[at : at + 1024] for at in range(0, len(raw), 1024)))

    began = time.process_time()
    with client(answer) as api:
        (found,) = api.follow("j")
    assert len(found.data) == 2**25
    assert time.process_time() - began < 10


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_walk, "PAUSE_S", 0.0)
    with client(lambda _: httpx.Response(200, text=": stream\n\n")) as api, pytest.raises(Unreachable):
        list(api.follow("j", patience_s=0.05))
    with client(lambda _: httpx.Response(404, json={})) as api, pytest.raises(ResourceNotFound):
        list(api.follow("j"))
