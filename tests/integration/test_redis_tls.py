"""Redis over TLS, as it is deployed: every service by its own user and certificate, and nobody else. A real server."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from aetheris.cli.embedded.probes import why_redis_is_unready
from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.leases import Lease, Leases
from tests.testkit import tls_redis
from tests.testkit.attempts import fresh
from tests.testkit.authority import Authority
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke
from tests.testkit.services_by_user import PATIENCE_S, services_by_user
from tests.testkit.tls_redis import TlsRedis

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400), tls_redis.needed]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[TlsRedis]:
    with tls_redis.tls_redis(tmp_path_factory.mktemp("tls") / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def rig(server: TlsRedis, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with services_by_user(tmp_path_factory.mktemp("services"), kafka, server.url) as rig:
        yield rig


def test_every_service_works_over_tls_with_the_rights_that_it_has(server: TlsRedis, rig: Rig) -> None:
    tag = fresh("tls")
    job = rig.system.submit(poke("a", f"{tag}-a"), poke("b", f"{tag}-b", "a", tool="poke_idempotent"))
    rig.system.wait_status(job, "completed", PATIENCE_S)
    until(lambda: job in {one["job_id"] for one in rig.system.api.get("/jobs").json()["jobs"]}, PATIENCE_S)
    assert rig.external.count(f"{tag}-a") == rig.external.count(f"{tag}-b") == 1
    with server.inspector() as client:
        there = {str(one.get("user")) for one in client.client_list()}
    assert there >= {"gateway", "ledger", "tool-executor"}, "each is there under its own name"
    assert server.denied() == set()


async def test_who_is_not_let_in_is_told_and_nothing_goes_in_the_clear(server: TlsRedis, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    refused = {
        "another CA": server.url("ledger", ca=other.ca),
        "no certificate": server.url("ledger", shown=False),
        "a wrong password": server.url("ledger", password=fresh("guessed")),
        "in the clear": f"redis://ledger:{server.passwords['ledger']}@127.0.0.1:{server.port}/0",
        "another name": server.url("ledger").replace("127.0.0.1", "localhost"),
    }
    for what, url in refused.items():
        client = Redis(url, 5.0)
        with pytest.raises(RedisUnavailable) as said:
            await client.ping()
        await client.close()
        assert server.passwords["ledger"] not in str(said.value), what
        why = await asyncio.to_thread(why_redis_is_unready, url)
        assert why is not None, what
        assert server.passwords["ledger"] not in why, what
    client = Redis(server.url("ledger"))
    leases, key = Leases(client), fresh("k")
    await leases.grant([Lease(key, "l", 60.0)])
    assert await leases.held([key]) == [True]
    await client.close()
    assert await asyncio.to_thread(why_redis_is_unready, server.url("ledger")) is None, "as `aetheris doctor` asks"
