"""A log on other brokers: copied record by record to the same offsets, or by Kafka's own MirrorMaker."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from aetheris.cli.backup.take import BEFORE_EVENTS, BEHIND_EVENTS
from aetheris.cli.embedded.processes import end, spawn
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.kafka.bootstrap import login_of, servers_of
from aetheris.runtime.kafka.copies import CopyWriter
from aetheris.runtime.log.replay import replay
from tests.deploy.kafka_tools import command
from tests.testkit.external_server import until

PATIENCE_S = 240.0
KEPT = (*BEFORE_EVENTS, Topic.JOBS_EVENTS, Topic.JOBS_SEALS, *BEHIND_EVENTS)


def ends_of(bootstrap: str, *topics: str) -> dict[tuple[str, int], int]:
    """Where each partition of these topics ends; nothing of one that is not there."""

    async def ask() -> dict[tuple[str, int], int]:
        log = KafkaLog(bootstrap)
        await log.start()
        try:
            places = [(topic, number) for topic in topics for number in range(await log.partitions(topic))]
            return await log.end_offsets(places)
        finally:
            await log.stop()

    return asyncio.run(ask())


def copied(source: str, target: str, partitions: int) -> None:
    """By somebody who writes what he reads."""

    async def copy() -> None:
        await ensure_topics(target, partitions)
        log = KafkaLog(source)
        await log.start()
        try:
            async with CopyWriter(target) as writer:
                for topic in KEPT:
                    for number in range(await log.partitions(topic)):
                        place = (str(topic), number)
                        begin = (await log.beginning_offsets([place]))[place]
                        end_ = (await log.end_offsets([place]))[place]
                        async for records in replay(log, place, begin, end_):
                            await writer.write(place, records, nulls=True)
        finally:
            await log.stop()

    asyncio.run(copy())


def mirrored(source: str, target: str, folder: Path) -> None:
    """By MirrorMaker, under the same names and with what groups have committed, until it has all of jobs.events."""
    settings = {
        "clusters": "old, new",
        **_cluster("old", source),
        **_cluster("new", target),
        "old->new.enabled": "true",
        "old->new.topics": r"aetheris\..*",
        "old->new.groups": r"aetheris\..*",
        "new->old.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "emit.heartbeats.enabled": "false",
        "tasks.max": "2",
        **{f"{name}.interval.seconds": "1" for name in ("sync.group.offsets", "emit.checkpoints")},
        **{f"refresh.{name}.interval.seconds": "2" for name in ("topics", "groups")},
        **{f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")},
        "replication.factor": "1",
    }
    config, log = folder / "mirror.properties", folder / "mirror.log"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    wanted = ends_of(source, Topic.JOBS_EVENTS, Topic.POLICIES)
    child = spawn(command("org.apache.kafka.connect.mirror.MirrorMaker", str(config)), log=log)
    try:
        until(lambda: _has(target, wanted), PATIENCE_S)
    except TimeoutError:
        raise AssertionError(log.read_text()[-3000:]) from None
    finally:
        end(child, 20.0)


def _has(target: str, wanted: Mapping[tuple[str, int], int]) -> bool:
    try:
        return ends_of(target, Topic.JOBS_EVENTS, Topic.POLICIES) == wanted
    except Exception:  # noqa: BLE001  the topics are not there yet
        return False


def _cluster(name: str, bootstrap: str) -> dict[str, str]:
    found = {f"{name}.bootstrap.servers": servers_of(bootstrap)}
    login = login_of(bootstrap)
    if login is not None:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        said = f'{module} required username="{login.user}" password="{login.password}";'
        found |= {
            f"{name}.security.protocol": "SASL_PLAINTEXT",
            f"{name}.sasl.mechanism": "PLAIN",
            f"{name}.sasl.jaas.config": said,
        }
    return found
