"""The HTTP API is what docs/openapi.json says: its routes, and every request that the SDK's clients make."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from aetheris.gateway.http_api import ROUTERS
from aetheris.gateway.routes import probes, submission
from aetheris.protocol import api
from aetheris.sdk.client import AsyncClient, Client, Goal
from tests.testkit.http_api import document, wrong_answer, wrong_request

URL = "http://gateway"
PLAN = {"nodes": [{"id": "a", "tool": "pay", "args": {}}]}
VERDICT = {"a": {"verdict": "happened", "evidence": "seen", "result": 1}}
CALLS: dict[str, list[Callable[[Any], Any]]] = {
    "submit": [
        lambda client: client.submit(PLAN, agent="x", session="s", options={"trace": True}, idempotency_key="k"),
        lambda client: client.submit(
            Goal(goal="g", tools=["*"], model="m", system="s", planning="graph", limits={"turns": 3}, max_tokens=9),
            wait_s=1,
        ),
    ],
    "jobs": [
        lambda client: client.jobs(status="running", cursor="c", limit=3),
        lambda client: client.jobs(agent="a", since="2026-01-01T00:00:00Z", tenant="t"),
    ],
    "job": [lambda client: client.job("j"), lambda client: client.job("j", wait_s=2)],
    "cancel": [lambda client: client.cancel("j", reason="r", compensate=True, tenant="t")],
    "undo": [lambda client: client.undo("j", tool="t", since="2026-01-01T00:00:00Z")],
    "undoable": [lambda client: client.undoable(agent="a", tool="t", since="2026-01-01T00:00:00Z", cursor="c")],
    "pause": [lambda client: client.pause("j", reason="r")],
    "resume": [lambda client: client.resume("j", reason="r")],
    "continue_job": [lambda client: client.continue_job("j", PLAN, options={"trace": True}, settle=VERDICT)],
    "cancel_contract": [lambda client: client.cancel_contract("j", "e", reason="r")],
    "signal": [lambda client: client.signal("j", "key", {"a": 1})],
    "reconcile": [lambda client: client.reconcile("j")],
    "approvals": [lambda client: client.approvals(cursor="c", limit=2)],
    "request": [lambda client: client.request("r")],
    "respond": [lambda client: client.respond("r", "edit", data={"amount": 1}, comment="c")],
    "resolve": [lambda client: client.resolve("j", "e", "happened", evidence="seen", result={"id": 1})],
    "events": [lambda client: client.events("j", after=1, limit=2)],
    "contracts": [lambda client: client.contracts("j", "request")],
    "verify": [lambda client: client.verify("j")],
    "raw_stream": [lambda client: client.raw_stream("j")],
    "evidence": [
        lambda client: client.evidence("j"),
        lambda client: client.evidence("j", audience="auditor", redact=["results", "reasons"]),
    ],
    "call_proof": [lambda client: client.call_proof("j", "re_1", disclose=["tool", "amount"], step="a")],
    "inclusion": [lambda client: client.inclusion("j")],
    "interim_seals": [lambda client: client.interim_seals("job-1")],
    "answers": [lambda client: client.answers("a" * 64)],
    "checkpoint": [lambda client: client.checkpoint()],
    "seal_entries": [lambda client: client.seal_entries(3)],
    "consistency": [lambda client: client.consistency(3)],
    "replay": [lambda client: client.replay("j", to="3", steps=True)],
    "effects": [lambda client: client.effects("j")],
    "ledger": [lambda client: client.ledger("j")],
    "trace": [lambda client: client.trace("j")],
    "why": [
        lambda client: client.why(job_id="j", external_id="x", tool="t", since="2026-01-01", where=["a==1"], cursor="c")
    ],
    "tools": [lambda client: client.tools()],
    "release_tool": [lambda client: client.release_tool("t", reason="mended")],
    "policy": [lambda client: client.policy()],
    "rules": [lambda client: client.rules()],
    "order_rules": [lambda client: client.order_rules(2, reason="it is time")],
    "try_policy": [lambda client: client.try_policy("rules = []", since="2026-01-01T00:00:00Z", cursor="c")],
    "activate_policy": [lambda client: client.activate_policy("rules = []", reason="less")],
    "freezes": [lambda client: client.freezes()],
    "freeze": [lambda client: client.freeze(tool="t", everywhere=True, reason="r")],
    "unfreeze": [lambda client: client.unfreeze(agent="a", tenant="t")],
    "openings": [lambda client: client.openings("job-1", cursor="c")],
    "erasures": [lambda client: client.erasures("a" * 32)],
    "erase_subject": [lambda client: client.erase_subject("c-17", tenant="t")],
    "enrol_subject": [lambda client: client.enrol_subject("c-17")],
    "hold_subject": [lambda client: client.hold_subject("c-17", tenant="t")],
    "release_subject": [lambda client: client.release_subject("c-17")],
    "models": [lambda client: client.models()],
    "audit": [lambda client: client.audit(since="2026-01-01T00:00:00Z", cursor="c")],
    "limits": [lambda client: client.limits()],
    "caller": [lambda client: client.caller()],
    "health": [lambda client: client.health()],
    "stalled": [lambda client: client.stalled()],
    "budgets": [lambda client: client.budgets(since="2026-01-01T00:00:00Z")],
    "leases": [lambda client: client.leases(), lambda client: client.leases("j")],
    "quotas": [lambda client: client.quotas()],
    "schedules": [lambda client: client.schedules()],
    "tell_schedules": [lambda client: client.tell_schedules({"scheduler": "s", "starts": [], "left_out": 1})],
    "dead_letters": [lambda client: client.dead_letters("t")],
    "dead_letter": [lambda client: client.dead_letter("t", 0, 1)],
    "redrive": [lambda client: client.redrive("t", 0, 1, reason="upgraded")],
    "workers": [lambda client: client.workers()],
    "worker": [lambda client: client.worker("w")],
    "end_worker": [lambda client: client.end_worker("w", evidence="gone", incarnation="i")],
}
NOT_ASKED = {"close", "follow", "run"}
"""`follow` asks for `events`, as a stream; what a run asks for has tests of its own."""


def test_every_route_is_described() -> None:
    routes = [route for router in (*ROUTERS, probes.router) for route in router.routes if isinstance(route, APIRoute)]
    served = {(method.lower(), route.path) for route in routes for method in route.methods or ()}
    served |= {("post", submission.route.path)}
    described = {(method, path) for path, methods in document()["paths"].items() for method in methods}
    assert described == served


def test_every_model_of_the_api_is_used() -> None:
    schemas = document()["components"]["schemas"]
    own = {name for name, kind in vars(api).items() if inspect.isclass(kind) and kind.__module__ == api.__name__}
    unused = own - schemas.keys() - {"ResponseModel", "RequestModel"}
    assert unused == set()


def test_the_clients_are_twins() -> None:
    ours = {name for name in dir(Client) if not name.startswith("_")}
    assert ours == {name for name in dir(AsyncClient) if not name.startswith("_")} == CALLS.keys() | NOT_ASKED
    for name in CALLS:
        one, other = inspect.signature(getattr(Client, name)), inspect.signature(getattr(AsyncClient, name))
        assert (name, one) == (name, other)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_what_the_clients_ask_is_described(name: str) -> None:
    seen: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(409, json={"error": {"code": "c", "message": "m", "details": {}}})

    for call in CALLS[name]:
        with Client(URL, "token", transport=httpx.MockTransport(refuse)) as client, pytest.raises(Exception, match="m"):
            call(client)
        asyncio.run(_ask(refuse, call))
    assert len(seen) == 2 * len(CALLS[name])
    for one, other in zip(seen[::2], seen[1::2], strict=True):
        assert wrong_request(one.method, str(one.url), one.content) == []
        assert (one.method, one.url, one.content) == (other.method, other.url, other.content)


async def _ask(refuse: Callable[[httpx.Request], httpx.Response], call: Callable[[Any], Any]) -> None:
    async with AsyncClient(URL, "token", transport=httpx.MockTransport(refuse)) as client:
        with pytest.raises(Exception, match="m"):
            await call(client)


def test_what_is_not_described_is_seen() -> None:
    assert wrong_request("POST", f"{URL}/api/jobs/j/cancel", b'{"why": 1}')
    assert wrong_request("GET", f"{URL}/api/jobs?state=x", b"")
    refused = b'{"error": {"code": "c", "message": "m", "details": {}}}'
    assert wrong_answer("GET", f"{URL}/api/jobs/j", 404, refused) == []
    assert wrong_answer("GET", f"{URL}/api/jobs/j", 404, b'{"error": {}}')
    page = b'{"jobs": [], "cursor": null%b}'
    assert wrong_answer("GET", f"{URL}/api/jobs", 200, page % b"") == []
    assert wrong_answer("GET", f"{URL}/api/jobs", 200, page % b', "more": 1')
    with pytest.raises(LookupError):
        wrong_request("GET", f"{URL}/api/nowhere", b"")
