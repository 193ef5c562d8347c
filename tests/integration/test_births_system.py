"""A sealed job's signed records, laid once more behind its seal, with a forged request: nothing is called again."""

import asyncio
import json
from collections.abc import Generator, Sequence
from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from aetheris.cli.fromlog import read_log
from aetheris.proofs import RawRecord
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ToolRequest
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import StateCheckpointed
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PATIENCE_S = 180.0
EVENTS = str(Topic.JOBS_EVENTS)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    with running_rig(tmp_path_factory.mktemp("births")) as rig:
        yield rig


def partitions(rig: Rig) -> int:
    return len(rig.system.ends(EVENTS))


def done(rig: Rig, tag: str) -> str:
    """A sealed job whose opaque call took effect once."""
    job = rig.system.completed(poke("a", tag, tool="poke_opaque"))
    rig.system.wait_sealed(job, PATIENCE_S)
    assert rig.external.count(tag) == 1
    return job


def waits_beside(rig: Rig, number: int) -> tuple[str, str]:
    """A job of this partition whose call waits for a yes: ledger and executor alone bring it about."""
    while True:
        tag = fresh("beside")
        job = rig.system.submit(poke("a", tag, tool="poke_irreversible"))
        if partition_of(job, partitions(rig)) == number:
            rig.system.wait_asked(job, PATIENCE_S)
            return job, tag
        rig.system.api.post(f"/jobs/{job}/cancel", json={})  # or it would hold a mark elsewhere


def stream(rig: Rig, job: str) -> Sequence[RawRecord]:
    return asyncio.run(read_log(rig.system.state().kafka, job, ())).records


def lay_again(rig: Rig, job: str, number: int) -> None:
    """What of the job lies before its call, in one batch, and a request for that call."""
    lay_records_again(rig, stream(rig, job), number)


def lay_records_again(rig: Rig, records: Sequence[RawRecord], number: int) -> None:
    kinds = [one.header("ce_type").split(b".")[2].decode() for one in records]
    before = records[: kinds.index("tool_invocation_started")]
    job, planned = (before[0].key or b"").decode(), json.loads(records[kinds.index("plan_generated")].value)
    birth = rig.system.ends(EVENTS)[EVENTS, number]
    rig.system.write([tuple(Draft(EVENTS, one.key or b"", one.value, one.headers, number) for one in before)])
    request = ToolRequest(
        job_id=job, birth=birth, as_of=birth, revision=0, plan_hash=planned["plan_hash"], nodes=("a",)
    )
    made = draft(Topic.TOOLS_REQUESTS, request, key=job, id=fresh("request"), source="/rogue", time="t")
    rig.system.write([(replace(made, partition=number),)])


def comes_to_pass(rig: Rig, beside: tuple[str, str]) -> None:
    """Behind what was forged: whatever comes of that has come."""
    job, tag = beside
    answer = {"request_id": rig.system.wait_asked(job)["request_id"], "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code == 200
    until(lambda: rig.external.count(tag) == 1, PATIENCE_S)


def fill(rig: Rig, number: int, records: int = REACH + 500) -> None:
    """With more than reach, of records that say nothing of any job that is known."""
    said = StateCheckpointed(job_id="nobody", state_hash="s", as_of=0)
    one = draft(Topic.JOBS_EVENTS, said, key="nobody", id="i", source="/rogue", time="t")
    rig.system.write([(replace(one, partition=number),) * 500 for _ in range(records // 500)])


def restart(rig: Rig, *parts: str) -> None:
    for part in parts or ("ledger-0", "executor-0"):
        rig.system.kill(part)
    rig.system.wait_ready(PATIENCE_S)


def least_mark(rig: Rig, number: int) -> int:
    """Up to where the partition is needed by nobody, as far as those who read it have said."""

    async def ask() -> int:
        admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
        await admin.start()
        try:
            groups = [f"aetheris.{name}" for name in ("planner", "ledger", "tool_executor", "verifier")]
            place = TopicPartition(EVENTS, number)
            return min([(await admin.list_consumer_group_offsets(one))[place].offset for one in groups])
        finally:
            await admin.close()

    return asyncio.run(ask())


def cut(rig: Rig, number: int, offset: int) -> None:
    """What an operator does who wants room."""

    async def ask() -> None:
        admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(EVENTS, number): RecordsToDelete(offset)})
        finally:
            await admin.close()

    asyncio.run(ask())


def test_a_sealed_job_that_is_written_again_is_none(rig: Rig) -> None:
    """Near its seal, far behind it, elsewhere; ledger and executor have forgotten it, and nobody tells them."""
    tag = fresh("again")
    job = done(rig, tag)
    home = partition_of(job, partitions(rig))
    end = stream(rig, job)[-1].offset
    for is_far in (False, True):
        if is_far:
            fill(rig, home)
        beside = waits_beside(rig, home)
        if is_far:
            until(lambda: least_mark(rig, home) > end, PATIENCE_S)
        restart(rig)
        with rig.system.asleep("planner-0"):
            lay_again(rig, job, home)
            comes_to_pass(rig, beside)
            assert rig.external.count(tag) == 1, f"far: {is_far}"
    other = (home + 1) % partitions(rig)
    fill(rig, other, REACH // 2)  # by its offset alone it could have been written there
    beside = waits_beside(rig, other)
    with rig.system.asleep("planner-0"):
        lay_again(rig, job, other)
        comes_to_pass(rig, beside)
        assert rig.external.count(tag) == 1
    assert rig.system.verified(job)["violations"] == []


def test_below_what_is_committed_the_log_can_be_cut_and_all_restart_as_often_as_they_like(rig: Rig) -> None:
    """A job that waits goes on behind that, and one that was sealed below it comes again for nobody."""
    tag = fresh("cut")
    job = done(rig, tag)
    home = partition_of(job, partitions(rig))
    records = stream(rig, job)
    fill(rig, home)
    beside = waits_beside(rig, home)
    end = records[-1].offset + 1
    until(lambda: least_mark(rig, home) >= end, PATIENCE_S)
    cut(rig, home, least_mark(rig, home))
    for _ in range(2):
        restart(rig, "planner-0", "ledger-0", "executor-0", "verifier-0")
    with rig.system.asleep("planner-0"):
        lay_records_again(rig, records, home)
        comes_to_pass(rig, beside)
        assert rig.external.count(tag) == 1
    rig.system.wait_ended([beside[0]], PATIENCE_S)
    rig.system.wait_sealed(beside[0], PATIENCE_S)
