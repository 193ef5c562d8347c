"""Verifier, Redis and Kafka away; errors of one shape; a process that serves and stops."""

import asyncio
import contextlib
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from aetheris.cli.embedded.kafka import broker_in, install, wait_ready
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.gateway.app import gateway
from aetheris.gateway.settings import GatewaySettings
from aetheris.http_server.internal import InternalKey
from aetheris.http_server.served_tls import ServedTls
from aetheris.http_server.server import HttpServer
from aetheris.protocol.messages import events as ev
from aetheris.sdk.client import (
    AsyncClient,
    BadRequest,
    Unreachable,
)
from tests.testkit.authority import Authority
from tests.testkit.gateways import (
    DEADLINE_S,
    PLAN,
    eventually,
    running,
    settings_of,
)

pytestmark = [pytest.mark.nightly, pytest.mark.real]


@pytest.fixture
def settings(kafka: str, valkey_url: str, tmp_path: Path) -> GatewaySettings:
    return settings_of(kafka, valkey_url, tmp_path)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_proofs_come_from_the_verifier(kafka: str, valkey_url: str, tmp_path: Path, *, encrypted: bool) -> None:
    app = FastAPI()

    @app.get("/jobs/{job_id}/verify")
    async def verify(request: Request, job_id: str) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        key = InternalKey.load(None, tmp_path, dev=False)
        tenant = key.tenant(request.headers["authorization"], request.url.path, datetime.now(UTC))
        return {"execution_hash": job_id, "tenant": tenant}

    authority = Authority(tmp_path / "ca")
    shown = authority.sign("services")
    server = HttpServer(app, "127.0.0.1", 0, tls=ServedTls(shown.certificate, shown.key) if encrypted else None)
    serving = asyncio.create_task(server.run())
    await server.listening()
    url = f"{'https' if encrypted else 'http'}://127.0.0.1:{server.port}"
    settings = settings_of(kafka, valkey_url, tmp_path, verifier_url=url, ca=authority.ca)
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = await surroundings.started_job()
        assert await client.verify(job_id) == {"execution_hash": job_id, "tenant": surroundings.tenant}
        server.stop()
        await serving
        with pytest.raises(Unreachable) as refused:
            await client.verify(job_id)
        assert refused.value.retry_after_s is not None


async def test_without_redis_it_is_503(kafka: str, valkey_url: str, tmp_path: Path) -> None:
    async with running(settings_of(kafka, valkey_url, tmp_path)) as surroundings:
        tokens = surroundings.tokens
    settings = settings_of(kafka, "redis://127.0.0.1:9/0", tmp_path)
    async with gateway(settings) as http:
        write = tmp_path / "tokens.toml"
        assert write.exists()
        async with AsyncClient(f"http://127.0.0.1:{http.port}", tokens["ann"]) as client:
            for call in (client.job("x"), client.jobs(), client.submit(PLAN, idempotency_key="k"), client.cancel("x")):
                with pytest.raises(Unreachable) as refused:
                    await call
                assert refused.value.retry_after_s is not None


async def test_errors_have_one_shape(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw:
        for method, path, status in [("GET", "/nowhere", 404), ("DELETE", "/jobs", 405)]:
            answer = await raw.request(method, path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"code", "message", "details"}
        with pytest.raises(BadRequest) as refused:
            async with surroundings.client() as client:
                await client.submit({"nodes": []})
        assert (refused.value.code, refused.value.field) == ("invalid_plan", "plan.nodes")


async def test_a_foreign_name_of_the_host_is_refused(settings: GatewaySettings) -> None:
    async with running(settings) as surroundings, surroundings.raw() as raw:
        for path in ("/jobs", "/nowhere"):
            refused = await raw.get(path, headers={"Host": f"rebound.example:{raw.base_url.port}"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (421, "wrong_host")


async def test_a_process_of_its_own_serves_and_stops(settings: GatewaySettings) -> None:
    async with running(settings):
        pass  # topics are there, tokens are written
    environment = os.environ | {
        "AETHERIS_KAFKA": settings.kafka,
        "AETHERIS_REDIS": settings.redis,
        "AETHERIS_DATA": str(settings.data),
        "AETHERIS_DEV": "true",
        "AETHERIS_HTTP_PORT": "0",
        "AETHERIS_HEALTH_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "aetheris.gateway", env=environment)
    try:
        await eventually(lambda: asyncio.to_thread(_listens, process.pid))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _listens(pid: int) -> bool:
    """Whether the process has two listening TCP sockets: the API's and health's."""
    inodes = set[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in inodes for row in rows) >= 2


async def test_a_frozen_broker_is_503_and_streams_outlast_it(valkey_url: str, tmp_path: Path) -> None:
    broker = broker_in(install(lambda _part, _message: None), tmp_path / "broker", Ports(tmp_path))
    broker.prepare()
    child = spawn(broker.argv(), log=tmp_path / "kafka.log")
    try:
        up, alive = (lambda: kafka_answers(broker.address)), (lambda: child.poll() is None)
        await asyncio.to_thread(wait_ready, "kafka", up, alive, tmp_path / "kafka.log")
        await _outlast(settings_of(broker.address, valkey_url, tmp_path, request_s=1.0), child.pid)
    finally:
        child.send_signal(signal.SIGCONT)
        await asyncio.to_thread(end, child, 10.0)


async def _outlast(settings: GatewaySettings, broker_pid: int) -> None:
    async with running(settings) as surroundings, surroundings.client() as client:
        job_id = await surroundings.started_job()
        followed: list[int] = []

        async def follow() -> None:
            followed.extend([event.seq async for event in client.follow(job_id)])

        following = asyncio.create_task(follow())
        os.kill(broker_pid, signal.SIGSTOP)
        for call in (client.job(job_id), client.events(job_id), client.submit(PLAN), client.cancel(job_id)):
            with pytest.raises(Unreachable) as refused:
                await asyncio.wait_for(call, 5.0)
            assert refused.value.retry_after_s is not None
        os.kill(broker_pid, signal.SIGCONT)
        await surroundings.append(ev.JobCompleted(job_id=job_id))
        await asyncio.wait_for(following, DEADLINE_S)
        assert followed == [1, 2, 3]
        assert (await client.job(job_id)).status == "completed"
        assert (await client.submit(PLAN)).status == "submitted"
