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
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import check_broker, delete_below, ensure_topics, marks, set_restoring
from aetheris.runtime.kafka.copies import FILLER_KEY, CopyWriter, Misplaced, set_marks
from aetheris.runtime.kafka.topics import BrokerRefused
from aetheris.runtime.log.interface import LogUnreachable, Place
from aetheris.runtime.log.replay import replay

pytestmark = pytest.mark.real

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
