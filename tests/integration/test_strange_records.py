"""Records that nobody here wrote, too large, cut off or of no kind, in every topic: who reads them goes on."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownError

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.bootstrap import client_options
from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PARTITIONS = 4
LARGE = 900_000
PATIENCE_S = 90.0
_SPEC = ("ce_specversion", b"1.0")


def strange(topic: Topic) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """(key, value, headers): of no kind, cut off, too deep, too large, without a key, and deleted."""
    typed = [_SPEC, ("ce_id", b"strange"), ("ce_type", b"io.aetheris.job_created.v1")]
    deep = b'{"job_id":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    return [
        (b"strange", f"\xff{topic}".encode("latin-1"), []),
        (b"strange", b'{"job_id":"strange"', typed),
        (b"\xff\xfe", b"{}", typed),
        (b"strange", deep, typed),
        (b"strange", b'"' + b"x" * LARGE + b'"', typed),
        (None, b"[]", typed),
        (b"strange", None, []),
    ]


async def write(system: System) -> None:
    """Each of them, in each partition of each topic."""
    async with AIOKafkaProducer(**client_options(system.state().kafka)) as producer:
        for topic in Topic:
            for number in await producer.partitions_for(topic):
                for key, value, headers in strange(topic):
                    with suppress(*(() if key else (UnknownError,))):  # a compacted topic refuses it
                        await producer.send_and_wait(topic, value, key=key, partition=number, headers=headers)


def check_all_go_on(system: System, external: ExternalServer, tag: str) -> None:
    """A job in each partition ends, and each call was made once."""
    name = fresh(tag)
    tags = [f"{name}-{number}" for number in range(8 * PARTITIONS)]
    jobs = [system.submit({"id": "a", "tool": "poke_probeable", "args": {"tag": one}}) for one in tags]
    for job in jobs:
        system.wait_status(job, "completed", PATIENCE_S)
    assert [external.count(one) for one in tags] == [1] * len(tags)


def test_every_service_lives_with_them_and_restarts_from_them(system: System, external: ExternalServer) -> None:
    check_all_go_on(system, external, "before")
    pids = {name: part.pid for name, part in system.state().parts.items()}
    asyncio.run(write(system))
    check_all_go_on(system, external, "behind")
    assert {name: part.pid for name, part in system.state().parts.items()} == pids, "a service ended"
    with system.all_killed():
        pass
    system.wait_ready(PATIENCE_S)
    check_all_go_on(system, external, "restarted")
