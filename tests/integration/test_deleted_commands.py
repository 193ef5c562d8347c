"""A request that waits behind a parked duplicate until its topic has deleted it: it is made again, and all restart."""

import asyncio
from collections.abc import Generator

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
ASKED_AGAIN_S = 20
COMMANDS = (Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    folder = tmp_path_factory.mktemp("deleted")
    with running_rig(folder, {"AETHERIS_STUCK_AFTER_S": str(ASKED_AGAIN_S), **ruled_by(folder, ALLOW_ALL)}) as rig:
        yield rig


def delete(system: System, ends: dict[tuple[str, int], int]) -> None:
    """What retention does after a week."""

    async def ask() -> None:
        admin = AIOKafkaAdminClient(**client_options(system.state().kafka))
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(*place): RecordsToDelete(at) for place, at in ends.items()})
        finally:
            await admin.close()

    asyncio.run(ask())


def test_whoever_restarts_goes_on_and_the_request_is_made_again(system: System) -> None:
    same = {"tool": "lost_irreversible", "args": {"tag": "paid"}}
    job = system.submit({"id": "one", **same}, {"id": "two", **same})
    system.wait_status(job, "waiting", PATIENCE_S)
    delete(system, system.ends(*COMMANDS))
    for part in ("ledger-0", "executor-0", "verifier-0"):
        system.kill(part)
    system.wait_ready(PATIENCE_S)
    parked = next(step for step in system.job(job)["steps"] if step["state"] == "waiting")
    answer = system.resolve(job, parked["node_id"], "happened", result={"poked": "paid"})
    assert answer.status_code == 200, answer.text
    system.wait_ended([job], PATIENCE_S)
    reported = system.data_of(job, "invocation_rejected")
    assert [one["duplicate_of"]["execution_id"] for one in reported] == [parked["execution_id"]], (
        "it was asked for again"
    )
    system.verified(job)
