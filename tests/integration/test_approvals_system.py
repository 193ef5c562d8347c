"""Approvals on the whole system: a yes holds for what was shown, counts once, and outlives everything."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from aetheris.sdk.client import AsyncClient
from tests.outside import Outside, running_outside, until
from tests.system import System, running_system

pytestmark = pytest.mark.real

_log = structlog.get_logger(__name__)

MANY = int(os.environ.get("AETHERIS_TEST_REQUESTS", "300"))
"""Set it to 1000 on a machine that has nothing else to do."""
CALLERS = 64
HEAD = b"POST /api/ecs/respond HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-of-bob\r\n"
POLICY = """
[[rules]]
name = "ask"
tools = ["poke_irreversible"]
effect = "approval"
[[rules]]
name = "rest"
tools = ["*"]
effect = "allow"
"""
TOKENS = "".join(
    f'[[token]]\nvalue = "token-of-{who}"\nname = "{who}"\ntenant = "{tenant}"\n'
    for who, tenant in (("ann", "acme"), ("bob", "acme"), ("carol", "acme"), ("eve", "other"))
)
FORM = {
    "title": "Which way?",
    "fields": [
        {"name": "tag", "type": "text", "label": "Tag", "required": True},
        {"name": "hurry", "type": "boolean", "label": "Hurry", "default": False},
    ],
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Outside]:
    with running_outside(tmp_path_factory.mktemp("outside")) as server:
        yield server


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, outside: Outside) -> Generator[System]:
    data: Path = tmp_path_factory.mktemp("approvals")
    (data / "tokens.toml").write_text(TOKENS)
    (data / "policy.toml").write_text(POLICY)
    env = {"AETHERIS_TOOLS": "tests.outside_tools", "AETHERIS_POLICY": str(data / "policy.toml"), **outside.env}
    with running_system(data, env) as running:
        yield running


@contextmanager
def caller(system: System, who: str) -> Generator[httpx.Client]:
    headers = {"Authorization": f"Bearer token-of-{who}"}
    base = f"{system.state().gateway}/api"
    with httpx.Client(base_url=base, headers=headers, timeout=20, trust_env=False) as api:
        yield api


def respond(system: System, who: str, request: str, action: str, **more: Any) -> httpx.Response:
    with caller(system, who) as api:
        return api.post("/ecs/respond", json={"request_id": request, "action": action, **more})


def ask(system: System, tag: str, **node: Any) -> tuple[str, str]:
    """A job that waits for an approval: its id, and the request's."""
    job = system.submit({"id": "pay", "tool": "poke_irreversible", "args": {"tag": tag}} | node)
    return job, wait_asked(system, job)


def wait_asked(system: System, job: str) -> str:
    found: list[str] = []

    def listed() -> bool:
        approvals = system.api.get("/approvals", params={"limit": 200}).json().get("approvals", [])
        found[:] = [one["request_id"] for one in approvals if one["job_id"] == job]
        return bool(found)

    until(listed, 30)
    return found[0]


def test_a_yes_counts_once_for_what_was_shown_and_a_replayed_one_starts_nothing(
    system: System, outside: Outside
) -> None:
    job, request = ask(system, "once")
    shown = system.api.get(f"/ecs/status/{request}").json()
    assert (shown["status"], shown["execution_state"]) == ("waiting", "waiting")
    assert shown["request"]["context"]["arguments"]["tag"] == "once"
    assert system.api.post("/ecs/continue", json={"request_id": request}).status_code == 409
    assert respond(system, "ann", request, "approve").status_code == 403
    assert respond(system, "eve", request, "approve").status_code == 404
    assert (
        respond(system, "bob", request, "approve", data={"tag": "else"}).json()["error"]["details"]["field"] == "data"
    )
    assert outside.count("once") == 0
    said = respond(system, "bob", request, "approve")
    assert (said.status_code, said.json()["event"]) == (200, "approval_decided"), said.text
    again = respond(system, "bob", request, "approve")
    assert (again.status_code, again.json()["command_id"]) == (200, said.json()["command_id"])
    for who, action in (("bob", "reject"), ("carol", "approve"), ("carol", "reject")):
        assert respond(system, who, request, action).status_code == 409
    system.wait_ended([job])
    for who, action in (("bob", "reject"), ("carol", "approve")):
        assert respond(system, who, request, action).status_code == 409
    assert respond(system, "bob", request, "approve").status_code == 200
    assert outside.count("once") == 1
    assert system.api.post("/ecs/continue", json={"request_id": request}).json()["status"] == "approved"
    assert system.api.get(f"/jobs/{job}/verify").json()["ok"]
    events = system.api.get(f"/jobs/{job}/events").json()
    (decided,) = [event["data"] for event in events if event["type"] == "approval_decided"]
    assert decided["approver"] == "bob"


def test_a_no_rejects_and_nothing_is_called(system: System, outside: Outside) -> None:
    job, request = ask(system, "never")
    assert respond(system, "bob", request, "reject", comment="no").status_code == 200
    system.wait_ended([job])
    (step,) = system.job(job)["steps"]
    assert (step["state"], step["reason"]) == ("rejected", "approval")
    assert outside.count("never") == 0
    assert respond(system, "bob", request, "approve").status_code == 409
    assert system.api.get(f"/jobs/{job}/verify").json()["ok"]


def test_of_two_answers_at_once_one_wins_and_the_other_is_told(system: System, outside: Outside) -> None:
    async def race(request: str) -> list[int]:
        base = f"{system.state().gateway}/api"
        async with httpx.AsyncClient(base_url=base, timeout=20, trust_env=False) as api:
            said = (("bob", "approve"), ("carol", "reject"))
            answers = [
                api.post(
                    "/ecs/respond",
                    json={"request_id": request, "action": action},
                    headers={"Authorization": f"Bearer token-of-{who}"},
                )
                for who, action in said
            ]
            return [answer.status_code for answer in await asyncio.gather(*answers)]

    for number in range(5):
        job, request = ask(system, f"race-{number}")
        statuses = asyncio.run(race(request))
        assert sorted(statuses) == [200, 409]
        system.wait_ended([job])
        assert outside.count(f"race-{number}") == (1 if statuses[0] == 200 else 0)


def test_an_edit_voids_the_yes_of_before_and_only_the_new_call_runs(system: System, outside: Outside) -> None:
    job, request = ask(system, "before")
    bad = respond(system, "bob", request, "edit", data={"tag": 3})
    assert (bad.status_code, bad.json()["error"]["details"]["field"]) == (400, "data.tag")
    said = respond(system, "bob", request, "edit", data={"tag": "after"})
    assert (said.status_code, said.json()["event"]) == (200, "approval_requested"), said.text
    new = said.json()["next_request_id"]
    assert respond(system, "bob", request, "approve").status_code == 409
    assert respond(system, "bob", request, "edit", data={"tag": "after"}).status_code == 200
    assert wait_asked(system, job) == new
    assert respond(system, "bob", new, "approve").status_code == 200
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert (outside.count("before"), outside.count("after")) == (0, 1)
    assert system.api.get(f"/jobs/{job}/verify").json()["ok"]
    assert system.api.get(f"/ecs/status/{request}").json()["status"] == "edited"


def test_a_form_of_the_plan_gives_its_answer_to_the_next_step(system: System, outside: Outside) -> None:
    form = {"id": "which", "kind": "human", "form": FORM, "args": {"order": "o-1"}}
    act = {"id": "act", "tool": "poke_idempotent", "args": {"tag": {"$ref": "which#/tag"}}}
    job = system.submit(form, act)
    request = wait_asked(system, job)
    assert system.job(job)["status"] == "waiting"
    bad = respond(system, "bob", request, "approve", data={"hurry": True})
    assert (bad.status_code, bad.json()["error"]["details"]["field"]) == (400, "data.tag")
    assert respond(system, "bob", request, "edit", data={"tag": "x"}).status_code == 400
    answer = {"tag": "by-form"}
    assert respond(system, "bob", request, "approve", data=answer).json()["event"] == "wait_completed"
    assert respond(system, "bob", request, "approve", data=answer).status_code == 200
    assert respond(system, "bob", request, "approve", data={"tag": "other"}).status_code == 409
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert outside.count("by-form") == 1
    assert system.api.get(f"/jobs/{job}/verify").json()["ok"]
    events = system.api.get(f"/jobs/{job}/events").json()
    (done,) = [event["data"] for event in events if event["type"] == "wait_completed"]
    assert (done["by"], done["payload"]) == ("bob", {"tag": "by-form", "hurry": False})


def test_a_yes_in_the_log_is_enough_when_the_ledger_dies_before_it_grants(system: System, outside: Outside) -> None:
    """The kill lies between the approval and the start: the next ledger finds the yes, and grants."""
    job, request = ask(system, "kill")
    os.kill(system.pid("executor-0"), signal.SIGSTOP)
    try:
        assert respond(system, "bob", request, "approve").status_code == 200
        system.kill("ledger-0")
    finally:
        os.kill(system.pid("executor-0"), signal.SIGCONT)
    system.wait_ended([job])
    assert outside.count("kill") == 1


@pytest.mark.timeout(240)
def test_many_requests_outlive_everything_and_are_answered_fast(
    system: System, outside: Outside, record_property: Any
) -> None:
    jobs = submit_many(system)
    until(lambda: len(listed(system)) >= MANY, 90)
    for name in ("ledger-0", "planner-0", "executor-0", "verifier-0", "gateway-0"):
        system.kill(name)
    system.flush_redis()
    system.wait_ready()
    until(lambda: len(listed(system)) >= MANY, 60)
    requests = [one for one in listed(system) if one.partition(":")[0] in jobs]
    assert len(requests) == MANY
    began_s = time.monotonic()
    statuses = asyncio.run(approve_all(system, requests))
    rate = MANY / (time.monotonic() - began_s)
    record_property("answered_per_s", rate)
    _log.info("answered", requests=MANY, per_s=round(rate))
    assert set(statuses) == {200}
    system.wait_ended(jobs, 120)
    assert outside.count() - outside.count("once") >= MANY
    many = [effect["tag"] for effect in outside.effects() if effect["tag"].startswith("many-")]
    assert len(many) == len(set(many)) == MANY


def submit_many(system: System) -> set[str]:
    async def submit() -> set[str]:
        async with AsyncClient(system.state().gateway, "token-of-ann", transport=direct()) as client:
            gate = asyncio.Semaphore(32)

            async def one(number: int) -> str:
                async with gate:
                    node = {"id": "pay", "tool": "poke_irreversible", "args": {"tag": f"many-{number}"}}
                    return (await client.submit({"nodes": [node]})).job_id

            return set(await asyncio.gather(*(one(number) for number in range(MANY))))

    return asyncio.run(submit())


async def approve_all(system: System, requests: list[str]) -> list[int]:
    """On connections that are kept, written by hand: the client must not be what is measured."""
    where = httpx.URL(system.state().gateway)
    waiting = list(requests)
    statuses: list[int] = []

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        while waiting:
            body = json.dumps({"request_id": waiting.pop(), "action": "approve"}).encode()
            writer.write(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(answer.partition("content-length:")[2].partition("\r")[0]))
            statuses.append(int(answer.split()[1]))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask() for _ in range(CALLERS)))
    return statuses


def direct() -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport()


def listed(system: System) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "200"} | ({"cursor": cursor} if cursor else {})
        try:
            answer = system.api.get("/approvals", params=params)
        except httpx.TransportError:
            return []
        if answer.status_code != 200:
            return []
        found += [one["request_id"] for one in answer.json()["approvals"]]
        cursor = answer.json()["cursor"]
        if cursor is None:
            return found
