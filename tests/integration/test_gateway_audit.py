"""The audit topic of a gateway that listens: who came is there, no payload is, and who may not read it doesn't."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.principals import Role
from aetheris.protocol.messages.accesses import AccessChains
from aetheris.sdk.client import AsyncClient, Forbidden, ResourceNotFound, Unauthorized
from tests.testkit.gateways import DEADLINE_S, PLAN, GatewaySurroundings, eventually, running, settings_of
from tests.testkit.tokens import entry_of, token_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(2 * DEADLINE_S)]


@pytest.fixture
async def world(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncGenerator[GatewaySurroundings]:
    async with running(settings_of(kafka, valkey_url, tmp_path)) as world:
        yield world


async def recorded(client: AsyncClient) -> list[dict[str, Any]]:
    """All that is there, whose chains hold."""
    chains, found, cursor = AccessChains(), list[dict[str, Any]](), None
    while True:
        page = await client.audit(cursor=cursor)
        found += [one for one in page["records"] if chains.see(one)]
        cursor = page["cursor"]
        if cursor is None:
            assert chains.faults == []
            return found


async def test_who_came_saw_and_was_refused_is_recorded_and_no_payload_is(world: GatewaySurroundings) -> None:
    secret = {"nodes": [{"id": "a", "tool": "gw.pay", "args": {"amount": 77123}}]}
    async with world.client() as ann, world.client("eve") as eve, AsyncClient(world.url, "x" * 40) as nobody:
        job = (await ann.submit(secret)).job_id
        await world.bear(job)
        await ann.events(job)
        with pytest.raises(ResourceNotFound):
            await eve.events(job)
        with pytest.raises(Unauthorized):
            await nobody.tools()
        wanted = {("ann", "login", None), ("ann", "read", job), ("eve", "refused", job), (None, "refused", None)}
        found: list[dict[str, Any]] = []

        async def are_there() -> bool:
            found[:] = await recorded(ann)
            return wanted <= {(_who(one), one.get("action"), _subject(one)) for one in found}

        await eventually(are_there)
        assert "77123" not in json.dumps(found)
        assert token_of("ann") not in json.dumps(found)
        (refused,) = [one for one in found if one.get("tenant") == f"not-{world.tenant}" and one["action"] == "refused"]
        assert (_who(refused), refused["status"], refused["reason"]) == ("eve", 404, "unknown_job")


def _who(one: dict[str, Any]) -> str | None:
    return (one.get("principal") or {}).get("id")


def _subject(one: dict[str, Any]) -> str | None:
    return one.get("subject") if one.get("action") != "login" else None


async def test_an_auditor_sees_his_tenants_and_no_others_and_nobody_else_any(world: GatewaySurroundings) -> None:
    tenants = {"ann": world.tenant, "eve": f"not-{world.tenant}"}
    write_tokens(
        world.settings.data,
        tenants,
        entry_of("auditor", world.tenant, roles=[Role.AUDIT]),
        entry_of("reader", world.tenant, roles=[Role.READ, Role.READ_PAYLOADS]),
    )
    async with world.client() as ann, world.client("eve") as eve:
        await ann.submit(PLAN)
        await eve.tools()
    async with (
        AsyncClient(world.url, token_of("auditor")) as auditor,
        AsyncClient(world.url, token_of("reader")) as not_one,
    ):
        with pytest.raises(Forbidden):
            await not_one.audit()

        async def is_there() -> bool:
            return {"ann", "auditor"} <= {_who(one) for one in await recorded(auditor)}

        await eventually(is_there)
        found = await recorded(auditor)
        assert {one["tenant"] for one in found if not one.get("hidden")} == {world.tenant}
        assert any(one.get("hidden") for one in found)
        async with world.client() as administrator:
            configured = [one for one in await recorded(administrator) if one.get("subject") == "tokens"]
        assert configured[-1]["reason"] == "4 are known"
        later = await auditor.audit(since="2999-01-01T00:00:00Z")
        assert (later["records"], later["cursor"]) == ([], None)
