"""DNS rebinding: a page that a browser took for our host is told nothing."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from aetheris.http_server.hosts import KnownHosts


async def _yes(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("a secret")


APP = Starlette(routes=[Route("/", _yes)])


async def asked(host: str, *listed: str, server: str = "10.1.2.3") -> httpx.Response:
    known = KnownHosts(APP, listed)

    async def reached(scope: Scope, receive: Receive, send: Send) -> None:
        await known({**scope, "server": (server, 8080)}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(reached), base_url="http://127.0.0.1") as client:
        return await client.get("/", headers={"Host": host})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.9.9.9",
        "",
        "a b",
    ],
)
async def test_a_foreign_name_is_refused(host: str) -> None:
    refused = await asked(host, "gateway", "*.svc.cluster.local", "0.0.0.0")
    assert refused.status_code == 421
    assert refused.json()["error"]["code"] == "wrong_host"


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "10.1.2.3:8080"),
        *("gateway:8080", "gateway.aetheris.svc.cluster.local"),
    ],
)
async def test_a_name_of_its_own_is_answered(host: str) -> None:
    assert (await asked(host, "gateway", "*.svc.cluster.local")).text == "a secret"


async def test_the_address_of_ipv6_that_was_connected_to_is_its_own() -> None:
    assert (await asked("[fd00::7]:8080", server="fd00::7")).status_code == 200
    assert (await asked("[fd00::8]:8080", server="fd00::7")).status_code == 421


async def test_any_name_is_answered_where_a_star_says_so() -> None:
    assert (await asked("evil.example", "*")).status_code == 200
