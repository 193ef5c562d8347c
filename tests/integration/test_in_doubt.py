"""Calls whose end nobody saw: what a human may say, what a sleeper may still do; and many requests for one call."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.process.installation import process_of
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.group_members import stable_members
from tests.testkit.rig import TracedRig, running_traced_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PARTITIONS = 4
PATIENCE_S = 90.0
LEDGER, EXECUTORS = "aetheris.ledger", "aetheris.tool_executor"


@dataclass(frozen=True)
class DoubtRig(TracedRig):
    """Two executors whose leases are short."""

    def successes(self, job: str) -> list[dict[str, Any]]:
        """What has reported a success.

        A sleeper finds the grant of the next try, too, in its sockets when it wakes: it declares that in vain, and
        says so if it learns of it by losing its partition.
        """
        finished = (event["data"] for event in self.system.events(job, "tool_invocation_finished"))
        return [reported for reported in finished if reported["outcome"] == "success"]

    def step(self, job: str) -> dict[str, Any]:
        """The first step as the API shows it."""
        return self.system.job(job)["steps"][0]

    def held_call(self, tool: str, name: str) -> str:
        """A job whose one call took effect, its answer held back."""
        job = self.system.submit({"id": "a", "tool": tool, "args": {"tag": name, "hold": name}})
        self.external.wait_for(1, name, PATIENCE_S)
        return job

    def calling(self, tool: str, name: str) -> str:
        """A job whose one call has left, its effect held back: `name` is what holds it."""
        self.external.hold_before(name)
        job = self.system.submit({"id": "a", "tool": tool, "args": {"tag": name, "hold": name}})
        self.external.wait_arrived(name, PATIENCE_S)
        return job

    def let_go(self, name: str) -> None:
        """What was held back happens now."""
        (self.external.folder / name).unlink()

    def worker_of(self, job: str) -> str:
        """Who runs the job's first try."""
        (started,) = self.system.events(job, "tool_invocation_started")
        return process_of(started["data"]["worker_id"])


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[DoubtRig]:
    env = {"AETHERIS_LEASE_TTL_S": "2", "AETHERIS_SESSION_TIMEOUT_S": "3"}
    with running_traced_rig(tmp_path_factory.mktemp("doubt"), env, executor=2) as rig:
        # An empty Redis may have lost leases: for as long as a tool may run nothing is doubted. A later ledger knows.
        first = rig.system.submit({"id": "a", "tool": "poke_pure", "args": {"tag": "first"}})
        rig.system.wait_status(first, "completed", PATIENCE_S)
        rig.system.kill("ledger-0")
        rig.system.wait_ready(PATIENCE_S)
        yield DoubtRig(rig.system, rig.external, rig.collector)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_opaque_call_killed_in_the_middle_waits_for_a_human_who_settles_it(rig: DoubtRig) -> None:
    name = fresh("opaque-killed")
    held = rig.external.hold(name)
    job = rig.held_call("poke_opaque", name)
    rig.system.kill(rig.worker_of(job))
    view = rig.system.wait_status(job, "waiting", PATIENCE_S)
    held.unlink()
    assert rig.external.count(name) == 1
    assert view["why"] == (
        "a is parked (nobody can tell whether an opaque call took effect): whether it took effect is not known. "
        "Resolve it with evidence: happened, not_executed or retry"
    )
    step = rig.step(job)
    assert step["state"] == "waiting"
    answer = rig.system.resolve(job, "a", "happened", "I saw it outside", result={"poked": name})
    assert answer.status_code == 200, answer.text
    rig.system.wait_status(job, "completed", PATIENCE_S)
    (finished,) = rig.system.events(job, "tool_invocation_finished")
    assert (finished["data"]["via"], finished["data"]["by"]) == ("human", "approver")
    assert "I saw it outside" in str(finished["data"]["evidence"])
    assert rig.external.count(name) == 1


def test_a_request_that_arrives_after_the_first_answer_is_the_only_one(rig: DoubtRig) -> None:
    """On the wire when its executor is killed: not found, and found once its tool's timeout has gone by."""
    name = fresh("on-the-wire")
    job = rig.calling("poke_unstated", name)
    rig.system.kill(rig.worker_of(job))
    until(lambda: bool(rig.system.events(job, "invocation_probed", "invocation_reopened")), PATIENCE_S)
    rig.let_go(name)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.external.count(name) == 1
    assert [one["data"]["answer"] for one in rig.system.events(job, "invocation_probed")] == ["not_found", "found"]
    assert len(rig.system.events(job, "tool_invocation_started")) == 1
    until(lambda: rig.system.api.get(f"/jobs/{job}/verify").json()["seal"] is not None, PATIENCE_S)
    assert rig.system.api.get(f"/jobs/{job}/verify").json()["ok"]


def test_a_call_whose_own_code_raised_goes_on_though_its_worker_lives(rig: DoubtRig, tmp_path: Path) -> None:
    name = fresh("reset")
    once = tmp_path / name
    once.touch()
    job = rig.system.submit({"id": "a", "tool": "poke_reset", "args": {"tag": name, "once": str(once)}})
    rig.system.wait_status(job, "completed", PATIENCE_S)
    (doubted,) = rig.system.events(job, "invocation_in_doubt")
    assert (doubted["data"]["error_class"], doubted["data"]["returned"]) == ("ConnectionResetError", True)
    (reopened,) = rig.system.events(job, "invocation_reopened")
    assert reopened["data"]["evidence"][0]["returned"] == doubted["data"]["invocation_id"]
    assert (rig.external.count(name), rig.system.events(job, "worker_ended")) == (1, [])
    assert rig.system.verified(job)["ok"]


def test_what_it_had_sent_before_it_raised_may_arrive_later_and_is_the_only_one(rig: DoubtRig) -> None:
    name = fresh("impatient")
    job = rig.calling("poke_impatient", name)
    until(lambda: bool(rig.system.events(job, "invocation_probed", "invocation_reopened")), PATIENCE_S)
    rig.let_go(name)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.external.count(name) == 1
    assert [one["data"]["answer"] for one in rig.system.events(job, "invocation_probed")] == ["not_found", "found"]
    assert len(rig.system.events(job, "tool_invocation_started")) == 1


def test_what_fails_every_time_is_repeated_at_the_plans_pace(rig: DoubtRig) -> None:
    name = fresh("broken")
    retry = {"max_attempts": 3, "backoff_s": 1.0, "backoff_factor": 1.0}
    job = rig.system.submit({"id": "a", "tool": "poke_broken", "args": {"tag": name}, "retry": retry})
    rig.system.wait_status(job, "waiting", PATIENCE_S)
    assert rig.external.count(name) == 3
    due = [event["data"]["due_at"] for event in rig.system.events(job, "retry_scheduled")]
    begun = [event["time"] for event in rig.system.events(job, "tool_invocation_started")]
    assert [moment(at) <= moment(start) for at, start in zip(due, begun[1:], strict=True)] == [True, True]


def test_a_tool_that_computes_on_the_event_loop_puts_nobody_elses_call_in_doubt(rig: DoubtRig) -> None:
    name = fresh("beside")
    held = rig.external.hold(name)
    job = rig.held_call("poke_opaque", name)
    until(lambda: computing_beside(rig, job), PATIENCE_S)
    held.unlink()
    rig.system.wait_status(job, "completed", PATIENCE_S)
    assert rig.system.events(job, "invocation_in_doubt", "invocation_parked") == []


def computing_beside(rig: DoubtRig, job: str) -> bool:
    """Whether a tool that computes for four leases' time has come to the job's worker, and is done."""
    other = rig.system.submit({"id": "a", "tool": "compute", "args": {"seconds": 8}})
    rig.system.wait_status(other, "completed", PATIENCE_S)
    return rig.worker_of(other) == rig.worker_of(job)


def test_a_sleeper_after_its_read_back_is_parked_and_its_late_success_settles_it(rig: DoubtRig) -> None:
    """Its worker has not ended: what is not found may still come, so nobody else may call."""
    name = fresh("probeable-asleep")
    job = rig.calling("patient_probeable", name)
    with rig.system.asleep(rig.worker_of(job)):
        rig.system.wait_status(job, "waiting", PATIENCE_S)
        (parked,) = rig.system.events(job, "invocation_parked")
        assert parked["data"]["reason"] == "it was not found, but its worker is not known to have ended"
        assert len(rig.system.events(job, "tool_invocation_started")) == 1
        rig.let_go(name)
        rig.external.wait_for(1, name, PATIENCE_S)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    (finished,) = rig.system.events(job, "tool_invocation_finished")
    assert (finished["data"]["outcome"], rig.external.count(name)) == ("success", 1)


@pytest.mark.parametrize("by", ["its lock", "a person"])
def test_what_a_sleeper_left_parked_goes_on_once_it_has_ended(rig: DoubtRig, by: str, tmp_path: Path) -> None:
    """Nobody resolves it: what the external system says is enough as soon as nothing can follow any more."""
    name = fresh("asleep-and-gone")
    once = tmp_path / name
    once.touch()
    job = rig.system.submit({"id": "a", "tool": "poke_late", "args": {"tag": name, "once": str(once)}})
    until(lambda: not once.exists(), PATIENCE_S)
    sleeper = rig.worker_of(job)
    (started,) = rig.system.events(job, "tool_invocation_started")
    os.kill(rig.system.pid(sleeper), signal.SIGSTOP)
    rig.system.wait_status(job, "waiting", PATIENCE_S)
    assert len(rig.system.events(job, "invocation_parked")) == 1
    if by == "a person":
        path, body = f"/workers/{started['data']['worker_id']}/end", {"evidence": "its machine was taken away"}
        assert rig.system.api.post(path, json=body, headers=rig.system.approver).status_code == 200
    rig.system.kill(sleeper)
    rig.system.wait_status(job, "completed", PATIENCE_S)
    kinds = [event["type"] for event in rig.system.events(job)]
    assert kinds.index("invocation_parked") < kinds.index("worker_ended") < kinds.index("invocation_reopened")
    assert [one["data"]["by"] for one in rig.system.events(job, "invocation_reopened")] == ["probe"]
    assert [one["data"]["how"] for one in rig.system.events(job, "worker_ended")] == [
        "human" if by == "a person" else "lock"
    ]
    assert rig.external.count(name) == 1
    assert rig.system.verified(job)["ok"]
    rig.system.wait_ready(PATIENCE_S)


def test_an_idempotent_call_of_a_sleeper_is_sent_again_under_its_key_by_another(rig: DoubtRig) -> None:
    """The sleeper's own success comes late, and is kept as evidence."""
    name = fresh("idempotent-asleep")
    job = rig.calling("patient_idempotent", name)
    sleeper = rig.worker_of(job)
    with rig.system.asleep(sleeper):
        until(lambda: len(rig.system.events(job, "tool_invocation_started")) == 2, PATIENCE_S)
        first, second = (event["data"] for event in rig.system.events(job, "tool_invocation_started"))
        assert first["external_key"] == second["external_key"]
        assert process_of(second["worker_id"]) != sleeper
        rig.let_go(name)
        rig.system.wait_status(job, "completed", PATIENCE_S)
    until(lambda: len(rig.successes(job)) == 2, PATIENCE_S)
    settled, late = rig.successes(job)
    assert (settled["invocation_id"], late["invocation_id"]) == (second["invocation_id"], first["invocation_id"])
    assert rig.system.verified(job)["ok"]
    assert [effect["key"] for effect in rig.external.effects(tag=name)] == [first["external_key"]] * 2


def test_a_second_effect_that_a_human_brought_about_is_told_by_verify_and_raises_an_alarm(rig: DoubtRig) -> None:
    """He said retry; the sleeper had only been asleep, and its success is kept as evidence."""
    name = fresh("probeable-retried")
    job = rig.calling("patient_probeable", name)
    sleeper = rig.worker_of(job)
    with rig.system.asleep(sleeper):
        rig.system.wait_status(job, "waiting", PATIENCE_S)
        answer = rig.system.resolve(job, "a", "retry", "I believe that it is dead")
        assert answer.status_code == 200, answer.text
        until(lambda: len(rig.system.events(job, "tool_invocation_started")) == 2, PATIENCE_S)
        rig.let_go(name)
        rig.system.wait_status(job, "completed", PATIENCE_S)
    until(lambda: len(rig.successes(job)) == 2, PATIENCE_S)
    first, second, *_ = (event["data"] for event in rig.system.events(job, "tool_invocation_started"))
    settled, late = rig.successes(job)
    assert (settled["invocation_id"], late["invocation_id"]) == (second["invocation_id"], first["invocation_id"])
    assert rig.external.count(name) == 2
    told: list[dict[str, Any]] = []

    def is_told() -> bool:
        told[:] = rig.system.report(job)["violations"]
        return late["invocation_id"] in str(told)

    until(is_told, PATIENCE_S)  # what comes behind the seal is judged once an amendment covers it
    assert not rig.system.report(job)["tool_invocation_ledger_proof"]["ok"]
    broken = {one["rule"] for one in told}
    until(lambda: any((rig.collector.value("aetheris.violations", rule=rule) or 0) >= 1 for rule in broken), PATIENCE_S)


@asynccontextmanager
async def consumer(rig: DoubtRig) -> AsyncGenerator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(**client_options(rig.system.state().kafka)) as reading:
        yield reading


async def request_of(rig: DoubtRig, job: str) -> Any:
    """The planner's request for the job's step, as it lies in Kafka."""
    place = TopicPartition(Topic.TOOLS_REQUESTS, partition_of(job, PARTITIONS))
    async with consumer(rig) as reading:
        reading.assign([place])
        await reading.seek_to_beginning(place)
        async for record in reading:
            if record.key == job.encode():
                return record
    raise AssertionError("the consumer ended")


async def repeat(rig: DoubtRig, request: Any, times: int) -> None:
    """The same request again and again, from a producer of its own."""
    async with AIOKafkaProducer(**client_options(rig.system.state().kafka)) as producer:
        for _ in range(times):
            await producer.send_and_wait(
                request.topic,
                request.value,
                key=request.key,
                partition=request.partition,
                headers=list(request.headers),
            )


async def end_of(rig: DoubtRig, topic: Topic, partition: int) -> int:
    place = TopicPartition(topic, partition)
    async with consumer(rig) as reading:
        return (await reading.end_offsets([place]))[place]


def is_taken_up(offsets: dict[TopicPartition, Any], place: TopicPartition, wanted: int) -> bool:
    return place in offsets and offsets[place].offset >= wanted


async def taken_up(rig: DoubtRig, partition: int) -> None:
    """Return once the ledger has judged every request of the partition: its group's offset says so."""
    place = TopicPartition(Topic.TOOLS_REQUESTS, partition)
    wanted = await end_of(rig, Topic.TOOLS_REQUESTS, partition)
    admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
    await admin.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_taken_up(await admin.list_consumer_group_offsets(LEDGER), place, wanted):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # nothing tells of a commit
    finally:
        await admin.close()


async def executors_settled(rig: DoubtRig) -> None:
    """Return once both are members: one that comes back from its sleep takes calls from the other."""
    admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
    await admin.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await stable_members(admin, EXECUTORS) != 2:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


@pytest.mark.parametrize("round_", range(20))
async def test_fifty_requests_for_one_key_are_one_execution(rig: DoubtRig, round_: int) -> None:
    """By two producers: one execution, nobody polls, and waiting uses up no try."""
    await executors_settled(rig)
    name = fresh(f"fifty-{round_}")
    held = rig.external.hold(name)
    job = await asyncio.to_thread(rig.held_call, "poke_probeable", name)
    request = await request_of(rig, job)
    granted = await end_of(rig, Topic.TOOLS_GRANTS, request.partition)
    await asyncio.gather(repeat(rig, request, 25), repeat(rig, request, 25))
    await taken_up(rig, request.partition)
    held.unlink()
    await asyncio.to_thread(rig.system.wait_status, job, "completed", PATIENCE_S)
    assert await end_of(rig, Topic.TOOLS_GRANTS, request.partition) == granted
    assert len(rig.system.events(job, "tool_invocation_started")) == 1
    assert (rig.step(job)["attempts"], rig.external.count(name)) == (1, 1)


def test_a_node_gives_its_call_less_time_than_its_tool(rig: DoubtRig) -> None:
    name = fresh("brief")
    call = {"tag": name, "delay_s": 10}
    node = {"id": "a", "tool": "poke_pure", "args": call, "timeout_s": 0.3, "retry": {"max_attempts": 1}}
    job = rig.system.submit(node)
    rig.system.wait_ended([job], 20)
    assert rig.step(job)["reason"] == "TimeoutError"
