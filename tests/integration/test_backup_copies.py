"""A copied log lies where it did; services refuse it until it is whole, and it is mixed with none. Real Kafka."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import FreezeOrder, JobIndexEntry
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import check_broker, delete_below, ensure_topics, marks, set_restoring
from aetheris.runtime.kafka.copies import FILLER_KEY, CopyWriter, Misplaced, set_marks
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import LogUnreachable, Place
from aetheris.runtime.log.replay import replay

pytestmark = [pytest.mark.nightly, pytest.mark.real]

PARTITIONS = 2
EVENTS: Place = (str(Topic.JOBS_EVENTS), 1)
INDEX: Place = (str(Topic.JOBS_INDEX), 0)


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"copies-{fresh_id()[-10:]}"
    monkeypatch.setenv("AETHERIS_PREFIX", name)
    return name


def record(place: Place, offset: int, value: bytes = b"{}", key: bytes | None = b"job") -> Record:
    return Record(*place, offset, 1_600_000_000_000 + offset, key, (("ce_id", b"\x00\xff"), ("ce_id", b"")), value)


async def read(kafka: str, prefix: str, place: Place) -> list[Record]:
    log, found = KafkaLog(kafka, prefix=prefix), list[Record]()
    await log.start()
    try:
        begin, end = (await log.beginning_offsets([place]))[place], (await log.end_offsets([place]))[place]
        async for records in replay(log, place, begin, end):
            found += records
    finally:
        await log.stop()
    return found


async def test_each_record_lies_where_it_did_with_its_bytes_and_its_time(kafka: str, prefix: str) -> None:
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    many = [record(EVENTS, at, b"x" * 900) for at in range(5_000)]
    last = record(EVENTS, 5_000, b"y" * 800_000, key=None)
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [*many, last])
        await writer.write(INDEX, [record(INDEX, 3), record(INDEX, 9, b"")], nulls=True)
        await writer.fill_up(INDEX, 12, 0)
        assert (writer.end(EVENTS), writer.end(INDEX)) == (5_001, 12)
        with pytest.raises(Misplaced):
            await writer.write(EVENTS, [record(EVENTS, 17)])
    found = await read(kafka, prefix, EVENTS)
    assert [(one.offset, one.key, one.headers, one.value, one.timestamp_ms) for one in found] == [
        (one.offset, one.key, one.headers, one.value, one.timestamp_ms) for one in (*many, last)
    ]
    found = await read(kafka, prefix, INDEX)
    assert [(one.offset, one.key) for one in found] == [
        (at, b"job" if at in (3, 9) else FILLER_KEY) for at in range(12)
    ]


async def test_who_is_not_the_only_writer_stops(kafka: str, prefix: str) -> None:
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    log = KafkaLog(kafka, prefix=prefix)
    await log.start()
    appender = log.appender()
    await appender.start()
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [record(EVENTS, 0)])
        await appender.append([(Draft(EVENTS[0], b"job", b"{}", (), EVENTS[1]),)])
        with pytest.raises(Misplaced):
            await writer.write(EVENTS, [record(EVENTS, 1)])
    await appender.stop()
    await log.stop()


async def test_services_refuse_a_log_until_a_restore_has_ended(kafka: str, prefix: str) -> None:
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    await check_broker(kafka, PARTITIONS, dev=True, prefix=prefix)
    await set_restoring(kafka, restoring=True, prefix=prefix)
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    with pytest.raises(BrokerRefused, match="`aetheris restore` has not come to its end"):
        await check_broker(kafka, PARTITIONS, dev=True, prefix=prefix)
    await set_restoring(kafka, restoring=False, prefix=prefix)
    await check_broker(kafka, PARTITIONS, dev=True, prefix=prefix)


async def test_groups_read_on_from_their_marks(kafka: str, prefix: str) -> None:
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    await set_marks(kafka, {"aetheris.planner": {EVENTS: 7, INDEX: 3}}, prefix=prefix)
    found = await marks(kafka, EVENTS[0], PARTITIONS, prefix=prefix)
    assert found["aetheris.planner"] == {1: 7}


class PrefixedCopies:
    """One of a prefix on brokers that others use too, and its backup."""

    def __init__(self, kafka: str, redis: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka, self.redis, self.folder, self._patch = kafka, redis, folder, monkeypatch

    def called(self, prefix: str, *argv: str) -> tuple[int, Any]:
        self._patch.setenv("AETHERIS_PREFIX", prefix)
        env = {"AETHERIS_KAFKA": self.kafka, "AETHERIS_REDIS": self.redis}
        done = CliRunner().invoke(app, [*argv, "--data", str(self.folder / prefix), "--json"], env=env)
        return done.exit_code, json.loads(done.stdout)

    def restored(self, prefix: str) -> tuple[int, Any]:
        words = ("--by", "ann", "--old-ended", "it was never started", "--tenant", "acme")
        return self.called(prefix, "restore", str(self.folder / "backup"), *words)


async def test_a_log_that_let_go_of_its_beginning_is_laid_where_it_was_and_into_nothing_else(
    kafka: str, valkey_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = PrefixedCopies(kafka, valkey_url, tmp_path, monkeypatch)
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [record(EVENTS, at) for at in range(10)])
    await delete_below(kafka, {EVENTS: 4}, prefix=prefix)
    await set_marks(kafka, {"aetheris.planner": {EVENTS: 6}}, prefix=prefix)
    code, taken = await asyncio.to_thread(installation.called, prefix, "backup", str(tmp_path / "backup"))
    assert (code, taken["records"]) == (0, 6)
    code, refused = await asyncio.to_thread(installation.restored, prefix)
    assert (code, refused["error"]["code"]) == (2, "not_empty"), "not into the log that it is of"
    await check_broker(kafka, PARTITIONS, dev=True, prefix=prefix)  # which goes on as if nothing had been
    new = f"{prefix}-new"
    code, restored = await asyncio.to_thread(installation.restored, new)
    assert (code, restored["frozen"], restored["jobs"]) == (0, ["acme"], []), restored
    assert restored["fence"] == {"0": 0, "1": 10}
    assert [one.offset for one in await read(kafka, new, EVENTS)] == [*range(4, 10)]
    assert (await marks(kafka, EVENTS[0], PARTITIONS, prefix=new))["aetheris.planner"] == {1: 6}
    await check_broker(kafka, PARTITIONS, dev=True, prefix=new)
    code, refused = await asyncio.to_thread(installation.restored, new)
    assert (code, refused["error"]["code"]) == (2, "not_empty"), "nor a second time"


async def test_a_restore_that_ended_in_the_middle_is_never_served(
    kafka: str, valkey_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = PrefixedCopies(kafka, valkey_url, tmp_path, monkeypatch)
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [record(EVENTS, at) for at in range(10)])
    code, _ = await asyncio.to_thread(copies.called, prefix, "backup", str(tmp_path / "backup"))
    assert code == 0
    whole = CopyWriter.write

    async def dying(self: CopyWriter, place: Place, records: Iterable[Record], *, nulls: bool = False) -> None:
        await whole(self, place, records, nulls=nulls)
        if place == EVENTS:
            raise LogUnreachable("the brokers are gone")

    monkeypatch.setattr(CopyWriter, "write", dying)
    new = f"{prefix}-new"
    code, said = await asyncio.to_thread(copies.restored, new)
    assert (code, said["error"]["code"]) == (5, "log_unreachable")
    with pytest.raises(BrokerRefused, match="has not come to its end"):
        await check_broker(kafka, PARTITIONS, dev=True, prefix=new)
    (order,) = await read(kafka, new, (str(Topic.FREEZES), 0))
    assert FreezeOrder.model_validate_json(order.value).frozen, "and who looks nowhere finds all frozen"
    monkeypatch.setattr(CopyWriter, "write", whole)
    code, said = await asyncio.to_thread(copies.restored, new)
    assert (code, said["error"]["code"]) == (2, "not_empty"), "it is begun anew, on fresh servers"


def created(job: str, offset: int) -> Record:
    """The birth of a job, and where it lies."""
    headers = (("ce_type", b"io.aetheris.job_created.v1"),)
    return record(EVENTS, offset).replaced(key=job.encode(), headers=headers)


def listed(job: str, at: int, birth: int) -> Record:
    """What the index says of a job."""
    said = JobIndexEntry(
        job_id=job,
        birth=birth,
        request_hash="r",
        status="completed",
        tenant="acme",
        submitted_by="ann",
        created_at="2026-01-01T00:00:00Z",
    )
    place = (INDEX[0], EVENTS[1])
    return record(place, at, said.model_dump_json().encode()).replaced(key=job.encode())


async def test_a_partition_of_which_more_was_read_is_read_whole_again_and_jobs_that_it_lost_are_known_no_more(
    kafka: str, valkey_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = PrefixedCopies(kafka, valkey_url, tmp_path, monkeypatch)
    other, commands = (EVENTS[0], 0), (str(Topic.JOBS_COMMANDS), EVENTS[1])
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [created("there", 0), *(record(EVENTS, at) for at in range(1, 6))])
        await writer.write(other, [record(other, at) for at in range(4)])
        await writer.write(commands, [record(commands, at) for at in range(4)])
        await writer.write((INDEX[0], 1), [listed("there", 0, 0), listed("gone", 1, 8)], nulls=True)
    reads = {EVENTS: 9, other: 3, commands: 2}  # it had read jobs.events[1] to 9, and the log ends at 6
    await set_marks(kafka, {"aetheris.planner": reads, "aetheris.verifier": {EVENTS: 2}}, prefix=prefix)
    code, _ = await asyncio.to_thread(copies.called, prefix, "backup", str(tmp_path / "backup"))
    assert code == 0
    new = f"{prefix}-new"
    code, restored = await asyncio.to_thread(copies.restored, new)
    assert code == 0, restored
    said = await marks(kafka, EVENTS[0], PARTITIONS, prefix=new)
    assert (said["aetheris.planner"], said.get("aetheris.verifier")) == ({0: 3}, None), "of what was cut all is read"
    assert (await marks(kafka, commands[0], PARTITIONS, prefix=new))["aetheris.planner"] == {1: 2}
    lines = await read(kafka, new, (INDEX[0], 1))
    assert [(one.key, bool(one.value)) for one in lines] == [(b"there", True), (b"gone", False)]


async def test_what_has_its_jobs_elsewhere_than_it_says_is_not_restored(
    kafka: str, valkey_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = PrefixedCopies(kafka, valkey_url, tmp_path, monkeypatch)
    await ensure_topics(kafka, PARTITIONS, prefix=prefix)
    async with CopyWriter(kafka, prefix=prefix) as writer:
        await writer.write(EVENTS, [created("there", 3)])
        await writer.write((INDEX[0], 1), [listed("there", 0, 2)], nulls=True)
    code, _ = await asyncio.to_thread(copies.called, prefix, "backup", str(tmp_path / "backup"))
    assert code == 0
    code, refused = await asyncio.to_thread(copies.restored, f"{prefix}-new")
    assert (code, refused["error"]["code"]) == (1, "other_offsets")
