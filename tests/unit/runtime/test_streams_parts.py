"""Blobs, ids, settings, health, clocks and partitions."""

import asyncio
import hashlib
import json
import threading
import time
import uuid
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from aetheris.http_server.server import HttpServer
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.fresh_ids import fresh_id, fresh_secret
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, BlobName, FolderBlobs
from aetheris.runtime.kafka.topics import topic_specs
from aetheris.runtime.log.interface import MAX_GROUP_BYTES, GroupTooLarge, MixedGroup
from aetheris.runtime.log.partitioning import partition_of, place_of, weigh
from aetheris.runtime.process.health import Health
from aetheris.runtime.process.settings import RuntimeSettings, ToolSettings
from aetheris.testkit.clock import VirtualClock


async def test_a_blob_is_found_by_its_hash(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    ref = await blobs.put(b"large")
    assert ref == BlobName(hashlib.sha256(b"large").hexdigest(), 5)
    assert await blobs.put(b"large") == ref
    assert await blobs.get(ref) == b"large"
    assert len(list((tmp_path / "blobs").rglob("*.*"))) == 0


async def test_a_changed_blob_is_never_served(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    ref = await blobs.put(b"large")
    (tmp_path / ref.sha256[:2] / ref.sha256).write_bytes(b"lArge")
    with pytest.raises(BlobCorrupt):
        await blobs.get(ref)
    with pytest.raises(BlobMissing):
        await blobs.get(BlobName("ab" * 32, 1))


async def test_a_file_that_is_larger_than_any_blob_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aetheris.runtime.blobs.store.MOST_BYTES", 4)
    blobs = FolderBlobs(tmp_path)
    fits, larger = await blobs.put(b"1234"), await blobs.put(b"12345")
    assert await blobs.get(fits) == b"1234"
    with pytest.raises(BlobCorrupt):
        await blobs.get(larger)


async def test_many_writers_of_one_blob_agree(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    data = bytes(200_000)
    refs = await asyncio.gather(*(blobs.put(data) for _ in range(20)))
    assert len(set(refs)) == 1
    assert await blobs.get(refs[0]) == data


def test_ids_sort_by_time_and_nonces_are_random() -> None:
    ids = [uuid.UUID(fresh_id()) for _ in range(100)]
    assert {(one.version, one.variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert [one.int >> 80 for one in ids] == sorted(one.int >> 80 for one in ids)
    assert len({fresh_secret() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("key", "expected"),
    # From Kafka's own UtilsTest.testMurmur2, masked to 31 bits.
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_partitions_are_those_of_kafkas_own_clients(key: str, expected: int) -> None:
    assert partition_of(key, 2**31 - 1) == (expected & 0x7FFFFFFF) % (2**31 - 1)


def test_a_groups_weight_bounds_what_it_takes() -> None:
    draft = Draft("t", b"k", bytes(1000), (("name", b"value"),))
    assert weigh((draft,)) > 1000 + len("name") + len(b"value")
    with pytest.raises(GroupTooLarge):
        weigh((Draft("t", b"k", bytes(MAX_GROUP_BYTES)),))
    with pytest.raises(MixedGroup):
        place_of((), 4)
    with pytest.raises(MixedGroup):
        place_of((Draft("a", b"k", b""), Draft("b", b"k", b"")), 1)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_TOOLS", "shop.tools, mail.tools")
    monkeypatch.setenv("AETHERIS_PARTITIONS", "12")
    settings = ToolSettings()
    assert (settings.tools, settings.partitions) == (("shop.tools", "mail.tools"), 12)


def test_every_setting_says_what_it_means() -> None:
    assert all(field.description for field in RuntimeSettings.model_fields.values())


def test_every_topic_has_dead_letters_and_the_facts_are_kept_for_ever() -> None:
    specs = {spec.name: spec for spec in topic_specs(4)}
    assert set(specs) == {str(topic) for topic in Topic} | {dead_letters(topic) for topic in Topic}
    for topic in (Topic.JOBS_EVENTS, Topic.JOBS_SEALS):
        assert specs[topic].configs["retention.ms"] == "-1"
        assert specs[topic].configs["cleanup.policy"] == "delete"
    assert {topic for topic in Topic if specs[topic].partitions == 1} == {
        Topic.FREEZES,
        Topic.POLICIES,
        Topic.JOBS_SEALS,
        Topic.ACCESS_RECORDS,
    }


async def test_health_tells_alive_from_ready() -> None:
    health = Health(lambda: b"up 1\n")
    assert health.unready() == {"service": "starting"}
    reasons: dict[str, str | None] = {"redis": "gone"}
    health.add("redis", lambda: reasons["redis"])
    port = await health.start("127.0.0.1", 0)
    assert (await _get(port, "/livez"))[0] == 200
    assert await _get(port, "/readyz") == (503, {"ready": False, "unready": {"redis": "gone"}})
    reasons["redis"] = None
    assert await _get(port, "/readyz") == (200, {"ready": True, "unready": {}})
    health.report("jobs_stuck", lambda: 3)
    assert await _get(port, "/readyz") == (200, {"ready": True, "unready": {}, "jobs_stuck": 3})
    assert (await _get(port, "/other"))[0] == 404
    await health.stop()


async def test_metrics_are_said_by_a_thread_one_asker_after_another() -> None:
    asked: list[int] = []
    under_way: list[int] = []

    def exposition() -> bytes:
        under_way.append(threading.get_ident())
        time.sleep(0.01)
        asked.append(len(under_way))
        under_way.pop()
        return b"up 1\n"

    health = Health(exposition)
    port = await health.start("127.0.0.1", 0)
    async with httpx.AsyncClient(trust_env=False) as client:
        answers = await asyncio.gather(*(client.get(f"http://127.0.0.1:{port}/metrics") for _ in range(8)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, "up 1\n")}
    assert answers[0].headers["content-type"].startswith("text/plain; version=0.0.4")
    assert asked == [1] * 8
    await health.stop()


async def test_a_virtual_clock_wakes_in_order() -> None:
    clock = VirtualClock()
    woken: list[tuple[int, float]] = []

    async def sleeper(delay: int) -> None:
        await clock.sleep(delay)
        woken.append((delay, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(delay)) for delay in (3, 1, 2)]
    await asyncio.sleep(0)
    await clock.advance(2.5)
    assert woken == [(1, 1.0), (2, 2.0)]
    await clock.advance(1)
    await asyncio.gather(*tasks)
    assert clock.monotonic() == 3.5


async def _get(port: int, path: str) -> tuple[int, object]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, body = answer.split(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_server_keeps_an_idle_connection_longer_than_a_client_does() -> None:
    """Else a request that is sent at that moment is answered by nobody."""
    client_s = httpx.Limits().keepalive_expiry
    server = HttpServer(Starlette(), "127.0.0.1", 0)
    server._server._listener._socket.close()
    assert client_s is not None
    assert server._server.config.timeout_keep_alive > 2 * client_s
