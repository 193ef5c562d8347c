"""A thousand approvals that wait: they outlive everything, and are answered fast."""

import asyncio
import json
import sys
import time
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from aetheris.sdk.client import AsyncClient
from tests.testkit.approvers import running_approvers
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.policies import ALLOW_REST
from tests.testkit.rig import Rig
from tests.testkit.system import System
from tests.testkit.tokens import token_of

pytestmark = [pytest.mark.nightly, pytest.mark.real]

MANY, CALLERS = 1000, 64
LEAST_PER_S = 20
"""A machine of two cores that does nothing else answers ten times as many; the figure is printed."""
HEAD = b"POST /api/ecs/respond HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % token_of("bob").encode()
POLICY = f"""
[[rules]]
name = "ask"
tools = ["poke_irreversible"]
effect = "approval"
{ALLOW_REST}"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_approvers(tmp_path_factory.mktemp("approvals"), POLICY) as rig:
        yield rig


@pytest.mark.timeout(400)
def test_many_requests_outlive_everything_and_are_answered_fast(
    system: System, external: ExternalServer, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tag = fresh("many")
    jobs = submit_many(system, tag)
    until(lambda: len(listed(system, jobs)) == MANY, 150)
    for name in ("ledger-0", "planner-0", "executor-0", "verifier-0", "gateway-0"):
        system.kill(name)
    system.flush_redis()
    system.wait_ready()
    until(lambda: len(listed(system, jobs)) == MANY, 60)
    requests = listed(system, jobs)
    began_s = time.monotonic()
    statuses = asyncio.run(approve_all(system, requests))
    rate = MANY / (time.monotonic() - began_s)
    record_property("answered_per_s", rate)
    with capsys.disabled():
        sys.stdout.write(f"\n{MANY} requests, answered at {rate:.0f} a second\n")
    assert set(statuses) == {200}
    assert rate >= LEAST_PER_S
    until(lambda: jobs <= completed(system), 150)
    many = [effect["tag"] for effect in external.effects() if effect["tag"].startswith(tag)]
    assert len(many) == len(set(many)) == MANY


def submit_many(system: System, tag: str) -> set[str]:
    async def submit() -> set[str]:
        async with AsyncClient(system.state().gateway, token_of("ann"), transport=direct()) as client:
            gate = asyncio.Semaphore(32)

            async def one(number: int) -> str:
                async with gate:
                    node = {"id": "pay", "tool": "poke_irreversible", "args": {"tag": f"{tag}-{number}"}}
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


def listed(system: System, jobs: set[str]) -> list[str]:
    """The requests of these jobs that wait; none while the gateway can't say."""
    return [one["request_id"] for one in pages(system, "approvals") if one["job_id"] in jobs]


def completed(system: System) -> set[str]:
    return {one["job_id"] for one in pages(system, "jobs", status="completed")}


def pages(system: System, what: str, **wanted: str) -> list[dict[str, Any]]:
    """All pages of a list; [] while the gateway can't say."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        params = {"limit": "200"} | wanted | ({"cursor": cursor} if cursor else {})
        try:
            answer = system.api.get(f"/{what}", params=params)
        except httpx.TransportError:
            return []
        if answer.status_code != 200:
            return []
        found += answer.json()[what]
        cursor = answer.json()["cursor"]
        if cursor is None:
            return found
