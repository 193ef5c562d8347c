"""The verifier's HTTP answers our gateway alone, and of a tenant's jobs only those."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from aetheris.http_server.internal import InternalKey
from aetheris.proofs.evidence import BadEvidence
from aetheris.runtime.base.clock import SystemClock
from aetheris.verifier.http import api
from aetheris.verifier.proofs import Proofs, UnknownJob

KEY = InternalKey(b"k" * 32)
CLOCK = SystemClock()
PATHS = [f"/jobs/job-1/{what}" for what in ("verify", "stream", "evidence", "inclusion")]
SEALS = ["/seals/checkpoint", "/seals/consistency?old=0", "/seals/entries"]


class Told:
    """Proofs that say who asked."""

    keys = SimpleNamespace(trusted=())

    async def verify(self, job_id: str, tenant: str) -> dict[str, str]:
        if tenant != "acme":
            raise UnknownJob(f"no job {job_id}")
        return {"job": job_id, "tenant": tenant}

    async def stream(self, job_id: str, tenant: str) -> list[Any]:
        await self.verify(job_id, tenant)
        return []

    async def evidence(self, job_id: str, tenant: str) -> bytes:
        await self.verify(job_id, tenant)
        raise BadEvidence("not_sealed", "it runs")

    inclusion = evidence


def asking() -> httpx.AsyncClient:
    app = api(cast("Proofs", Told()), KEY, CLOCK)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://verifier")


def word(tenant: str, path: str, *, key: InternalKey = KEY, late_s: float = 0.0) -> dict[str, str]:
    return {"Authorization": key.authorization(tenant, path, CLOCK.now() - timedelta(seconds=late_s))}


@pytest.mark.parametrize("path", [*PATHS, *SEALS])
async def test_nobody_else_is_answered(path: str) -> None:
    plain = path.partition("?")[0]
    wrong: list[Callable[[], dict[str, str]]] = [
        dict,
        lambda: {"Authorization": "Bearer x"},
        lambda: {"Authorization": "Aetheris "},
        lambda: {"Authorization": "Aetheris ." + "x" * 43},
        lambda: {"Authorization": word("acme", plain)["Authorization"][:-2] + "xx"},
        lambda: word("acme", plain, key=InternalKey(b"o" * 32)),
        lambda: word("acme", plain + "/other"),
        lambda: word("acme", plain, late_s=100.0),
        lambda: word("acme", plain, late_s=-100.0),
    ]
    async with asking() as client:
        for headers in wrong:
            assert (await client.get(path, headers=headers())).status_code == 401
        assert (await client.get("/openapi.json")).status_code == 404


async def test_the_gateway_is_answered_about_the_tenant_that_it_asks_for() -> None:
    async with asking() as client:
        answer = await client.get(PATHS[0], headers=word("acme", PATHS[0]))
        assert answer.json() == {"job": "job-1", "tenant": "acme"}
        for path in PATHS:
            assert (await client.get(path, headers=word("other", path))).status_code == 404
