"""What who has the rights of the brokers' administrator, and nobody's key, can do to the log of a running system."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import GroupIdNotFound, NoError, NonEmptyGroup, for_code
from aiokafka.protocol.admin import DeleteGroupsRequest

from aetheris.cli.fromlog import read_log
from aetheris.proofs import RawRecord
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Message, ToolGrant, ToolRequest
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import StateCheckpointed, ToolInvocationStarted
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.kafka.log import KafkaLog
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.log.replay import replay
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke

EVENTS = str(Topic.JOBS_EVENTS)
PATIENCE_S = 180.0
TRY = ToolInvocationStarted.event_type
GROUPS = tuple(f"aetheris.{name}" for name in ("planner", "ledger", "tool_executor", "verifier"))
"""Of those who read jobs.events."""
PARTS = ("planner-0", "ledger-0", "executor-0", "verifier-0")
_AT_ONCE = 500


@dataclass(frozen=True)
class Beside:
    """A job whose call waits for a yes: ledger and executor alone bring it about."""

    job: str
    tag: str


def partitions(rig: Rig) -> int:
    """Of jobs.events, and of all that goes by it."""
    return len(rig.system.ends(EVENTS))


def home_of(rig: Rig, job: str) -> int:
    """The partition that a job lies in."""
    return partition_of(job, partitions(rig))


def end_of(rig: Rig, number: int) -> int:
    """Where the partition's next record comes to lie."""
    return rig.system.ends(EVENTS)[EVENTS, number]


def stream(rig: Rig, job: str) -> Sequence[RawRecord]:
    """What the log has of a job."""
    return asyncio.run(read_log(rig.system.state().kafka, job, ())).records


def type_of(record: RawRecord | Record) -> str:
    """The event_type."""
    return (record.header("ce_type") or b"").split(b".")[2].decode()


def tries_behind(rig: Rig, job: str, offset: int) -> Sequence[Record]:
    """What declares tries of a job, in its partition from there on."""
    number = home_of(rig, job)
    end = end_of(rig, number)

    async def read() -> Sequence[Record]:
        log, found = KafkaLog(rig.system.state().kafka), list[Record]()
        await log.start()
        try:
            async for records in replay(log, (EVENTS, number), offset, end):
                found += [one for one in records if one.key == job.encode() and type_of(one) == TRY]
        finally:
            await log.stop()
        return found

    return asyncio.run(read())


def waits_beside(rig: Rig, number: int) -> Beside:
    """A job of this partition that waits: what was forged before it is read has come to pass when it goes on."""
    while True:
        tag = fresh("beside")
        job = rig.system.submit(poke("a", tag, tool="poke_irreversible"))
        if home_of(rig, job) == number:
            rig.system.wait_asked(job, PATIENCE_S)
            return Beside(job, tag)
        rig.system.api.post(f"/jobs/{job}/cancel", json={})  # or it would hold a mark elsewhere


def comes_to_pass(rig: Rig, beside: Beside) -> None:
    """Behind what was forged: whatever comes of that has come."""
    answer = {"request_id": rig.system.wait_asked(beside.job)["request_id"], "action": "approve"}
    assert rig.system.api.post("/ecs/respond", json=answer, headers=rig.system.approver).status_code == 200
    until(lambda: rig.external.count(beside.tag) == 1, PATIENCE_S)


def fill(rig: Rig, number: int, records: int) -> None:
    """With records that say nothing of any job that is known."""
    said = StateCheckpointed(job_id="nobody", state_hash="s", as_of=0)
    one = draft(Topic.JOBS_EVENTS, said, key="nobody", id="i", source="/rogue", time="t", partition=number)
    sizes = [_AT_ONCE] * (records // _AT_ONCE) + ([records % _AT_ONCE] if records % _AT_ONCE else [])
    rig.system.write([(one,) * size for size in sizes])


def lay(rig: Rig, records: Sequence[RawRecord | Record], number: int) -> int:
    """These once more, to the byte, in one batch; where the first of them lies then."""
    begins = end_of(rig, number)
    rig.system.write([tuple(Draft(EVENTS, one.key or b"", one.value, one.headers, number) for one in records)])
    return begins


def before_its_call(records: Sequence[RawRecord]) -> Sequence[RawRecord]:
    """What of a job lies before it has anything done."""
    return records[: [type_of(one) for one in records].index(TRY)]


def ask_for(rig: Rig, records: Sequence[RawRecord], birth: int, number: int) -> None:
    """A request for the first call of a job that is said to be born there, and a grant of it: nobody signs those."""
    kinds = [type_of(one) for one in records]
    job, planned = (records[0].key or b"").decode(), json.loads(records[kinds.index("plan_generated")].value)
    started = json.loads(records[kinds.index(TRY)].value)
    node, as_of = str(started["node_id"]), end_of(rig, number) - 1
    about: dict[str, Any] = {"job_id": job, "birth": birth, "as_of": as_of, "plan_hash": planned["plan_hash"]}
    key = str(started["idempotency_key"])
    request = ToolRequest(**about, revision=0, nodes=(node,))
    granted = ToolGrant(
        **about, revision=0, nodes=(node,), idempotency_key=key, token=1, lease_id=fresh("lease"), deadline_s=30.0
    )
    for topic, message in ((Topic.TOOLS_REQUESTS, request), (Topic.TOOLS_GRANTS, granted)):
        say(rig, topic, job, message, number)


def say(rig: Rig, topic: Topic, key: str, message: Message, number: int) -> None:
    """A message that nobody has signed, in a partition of his choice."""
    made = draft(topic, message, key=key, id=fresh("forged"), source="/rogue", time="t")
    rig.system.write([(made.replaced(partition=number),)])


def marks(rig: Rig, number: int, topic: str = EVENTS) -> Mapping[str, int]:
    """Group → up to where the partition is needed by it no more, as far as it has said."""

    async def ask() -> Mapping[str, int]:
        admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
        await admin.start()
        try:
            place = TopicPartition(topic, number)
            said = {one: (await admin.list_consumer_group_offsets(one)).get(place) for one in GROUPS}
            return {one: 0 if mark is None else mark.offset for one, mark in said.items()}
        finally:
            await admin.close()

    return asyncio.run(ask())


def wait_taken_up(rig: Rig, number: int) -> None:
    """Return once ledger and executor need nothing more of what is asked for and granted there: tries are declared."""
    for topic, group in ((Topic.TOOLS_REQUESTS, "aetheris.ledger"), (Topic.TOOLS_GRANTS, "aetheris.tool_executor")):
        end = rig.system.ends(topic)[topic, number]
        until(lambda at=(str(topic), group, end): marks(rig, number, at[0])[at[1]] >= at[2], PATIENCE_S)


def least_mark(rig: Rig, number: int) -> int:
    """Up to where the partition is needed by nobody."""
    return min(marks(rig, number).values())


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


def forget_marks(rig: Rig) -> bool:
    """Take away what every group has committed; False as long as one has members, who are known to be gone late."""

    async def ask() -> bool:
        admin = AIOKafkaAdminClient(**client_options(rig.system.state().kafka))
        await admin.start()
        try:
            for group in GROUPS:
                answer: Any = await admin._send_request(  # pyright: ignore[reportPrivateUsage] - it has no such call yet
                    DeleteGroupsRequest([group]), await admin.find_coordinator(group)
                )
                ((_, code),) = answer.results
                if code == NonEmptyGroup.errno:
                    return False
                if code not in (NoError.errno, GroupIdNotFound.errno):
                    raise for_code(code)
            return True
        finally:
            await admin.close()

    return asyncio.run(ask())


def restart(rig: Rig, *parts: str) -> None:
    """Killed, and ready again; who else sleeps goes on sleeping."""
    for part in parts or PARTS:
        rig.system.kill(part)
    rig.system.wait_ready(PATIENCE_S, *(parts or PARTS))


def told(rig: Rig, part: str, words: str) -> list[dict[str, Any]]:
    """What a part has said with these words, in its own log."""
    text = (rig.system.data / "logs" / f"{part}.log").read_text()
    return [json.loads(line) for line in text.splitlines() if words in line]
