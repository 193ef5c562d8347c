"""Asks brokers about topics and groups: topics are made and checked, offsets looked up, records deleted."""

from collections.abc import Iterator, Mapping, Sequence
from ssl import SSLContext
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import IncompatibleBrokerVersion, InvalidPartitionsError, KafkaError, for_code

from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka.bootstrap import client_options, login_of
from aetheris.runtime.kafka.clock_skew import ClockSkewed, refused_skew, skew_s
from aetheris.runtime.kafka.connection import Address, Disconnected, Unspoken, connect
from aetheris.runtime.kafka.topics import (
    FOR_EVER,
    IN_SYNC,
    MIN_IN_SYNC,
    NOTHING_ASSURED,
    RESTORING_RETENTION_MS,
    RETENTION,
    UNCLEAN,
    Assured,
    BrokerRefused,
    Described,
    TopicSpec,
    faults,
    risks,
    topic_specs,
)
from aetheris.runtime.log.interface import LogUnreachable, Place

_log = structlog.get_logger(__name__)

_TOPIC_ALREADY_EXISTS = 36
_OF_TOPIC = 1
"""Where describe_configs says that a setting comes from: the topic itself."""

_KNOWN_WITHIN_S = 10.0
"""A topic that another service has just created is not known to every broker at once: for so long it is looked for."""
_LOOK_AGAIN_S = 0.2
_GROWING_TRIES = 20


async def ensure_topics(
    bootstrap: str, partitions: int, replication: int = 1, *, tls: SSLContext | None = None, prefix: str = ""
) -> list[str]:
    """Create the topics that don't exist; those that do are left as they are. The created ones, by their whole names.

    Raises:
        LogUnreachable: no broker answers, or one refuses.
    """
    in_sync = {IN_SYNC: str(min(MIN_IN_SYNC, replication)), UNCLEAN: "false"}
    wanted = [
        NewTopic(spec.name, spec.partitions, replication, topic_configs={**spec.configs, **in_sync})
        for spec in topic_specs(partitions, prefix)
    ]
    async with Admin(bootstrap, tls) as admin:
        answer: Any = await admin.create_topics(wanted)
    created: list[str] = []
    for name, code, *_ in answer.topic_errors:
        if code == 0:
            created.append(name)
        elif code != _TOPIC_ALREADY_EXISTS:
            raise LogUnreachable(f"{name} can't be created: {for_code(code).__name__}")
    return created


async def partition_counts(
    bootstrap: str, *, tls: SSLContext | None = None, prefix: str = ""
) -> dict[str, tuple[int, bool]]:
    """Topic, by its whole name → how many partitions it has (0: nobody knows it), and whether it may be given more.

    Raises:
        LogUnreachable: no broker answers, or one refuses.
    """
    async with Admin(bootstrap, tls) as admin:
        return await _counts(admin, prefix)


async def grow_topics(bootstrap: str, count: int, *, tls: SSLContext | None = None, prefix: str = "") -> list[str]:
    """Give those topics that may have more partitions up to `count`; which ones had fewer, by their whole names.

    Whoever does the same at the same time is no hindrance: it is asked for what is lacking until nothing is.

    Raises:
        LogUnreachable: no broker answers, or one refuses; some of them may have more by now.
    """
    grown: dict[str, None] = {}
    async with Admin(bootstrap, tls) as admin:
        for left in reversed(range(_GROWING_TRIES)):
            lacking = [name for name, (has, grows) in (await _counts(admin, prefix)).items() if grows and has < count]
            if not lacking:
                break
            try:
                await admin.create_partitions({name: NewPartitions(total_count=count) for name in lacking})
            except InvalidPartitionsError:  # somebody else has given one of them as many meanwhile
                if not left:
                    raise
            grown |= dict.fromkeys(lacking)
            await SystemClock().sleep(_LOOK_AGAIN_S)  # a broker answers before all of them know
    return list(grown)


async def _counts(admin: AIOKafkaAdminClient, prefix: str) -> dict[str, tuple[int, bool]]:
    specs = topic_specs(1, prefix)
    described: Any = await admin.describe_topics([spec.name for spec in specs])
    counts = {one["topic"]: len(one["partitions"]) for one in described}
    return {spec.name: (counts.get(spec.name, 0), spec.grows) for spec in specs}


async def set_restoring(
    bootstrap: str, *, restoring: bool, tls: SSLContext | None = None, prefix: str = "", clock: Clock | None = None
) -> None:
    """Let services refuse jobs.events until a backup is whole in it, or start on it again; the brokers say so by then.

    Raises:
        LogUnreachable: no broker answers, or one refuses, or none has taken it over in ten seconds.
    """
    name, clock = in_kafka(prefix) + Topic.JOBS_EVENTS, clock or SystemClock()
    wanted = RESTORING_RETENTION_MS if restoring else FOR_EVER
    async with Admin(bootstrap, tls) as admin:
        own = {**await _own_settings(admin, name), RETENTION: wanted}
        altered: Any = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, own)])
        for code, *_ in (one for answer in altered for one in answer.resources):
            if code:
                raise LogUnreachable(f"{name} can't be altered: {for_code(code).__name__}")
        until_s = clock.monotonic() + _KNOWN_WITHIN_S
        while (await _own_settings(admin, name)).get(RETENTION) != wanted:  # a broker answers before it has it
            if clock.monotonic() >= until_s:
                raise LogUnreachable(f"{name} was altered, and is not yet")
            await clock.sleep(_LOOK_AGAIN_S)


async def _own_settings(admin: AIOKafkaAdminClient, name: str) -> dict[str, str]:
    """Those of a topic that are not its brokers'."""
    answers: Any = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    return {entry[0]: entry[1] for answer in answers for entry in answer.resources[0][4] if entry[3] == _OF_TOPIC}


async def check_broker(
    bootstrap: str,
    partitions: int,
    *,
    dev: bool = False,
    tls: SSLContext | None = None,
    clock: Clock | None = None,
    prefix: str = "",
    assured: Assured = NOTHING_ASSURED,
) -> list[str]:
    """Refuse to run where an acknowledged record could be lost or a key could move.

    `dev` lets too few replicas pass, and a clock that is far from ours; what passed is given back. Topics that no
    broker knows are waited for, for ten seconds.

    Raises:
        ClockSkewed: their clock is too far from ours.
        BrokerRefused: naming every topic and key that is wrong, or the requests that a broker doesn't take.
        LogUnreachable: no broker answers.
    """
    specs = topic_specs(partitions, prefix)
    async with Admin(bootstrap, tls) as admin:
        described = await _described(admin, specs, clock or SystemClock())
        wrong = await _unspoken(bootstrap, admin, tls)
        skewed = refused_skew(await skew_s(_addresses(admin), tls, login_of(bootstrap), clock or SystemClock()))
    wrong += [fault for spec in specs for fault in faults(spec, described, assured)]
    risky = [fault for spec in specs for fault in risks(spec, described, assured)]
    if skewed is not None and not dev and not wrong:
        raise ClockSkewed(skewed)
    refused = wrong if dev else wrong + risky
    if refused:
        raise BrokerRefused("; ".join(refused))
    return risky + ([skewed] if skewed is not None else [])


async def cluster_id(bootstrap: str, *, tls: SSLContext | None = None) -> str | None:
    """The name by which brokers tell their cluster from any other; None where they have none.

    Raises:
        LogUnreachable: no broker answers.
    """
    async with Admin(bootstrap, tls) as admin:
        found: Any = await admin.describe_cluster()
    return found.get("cluster_id") or None


async def delete_below(
    bootstrap: str, offsets: Mapping[Place, int], *, tls: SSLContext | None = None, prefix: str = ""
) -> None:
    """Let the brokers delete what lies below these offsets, for good.

    Raises:
        LogUnreachable: no broker answers, or one refuses; some of it may be deleted.
    """
    wanted = {
        TopicPartition(in_kafka(prefix) + topic, number): RecordsToDelete(before_offset=offset)
        for (topic, number), offset in offsets.items()
    }
    async with Admin(bootstrap, tls) as admin:
        await admin.delete_records(wanted)


async def marks(
    bootstrap: str, topic: str, partitions: int, *, tls: SSLContext | None = None, prefix: str = ""
) -> dict[str, dict[int, int]]:
    """What every group has committed in a topic: group → partition → offset; of one that has nothing there, nothing.

    Of a group without the prefix `other group` is said before its name: it is none of this installation's.

    Raises:
        LogUnreachable: no broker answers, or one refuses.
    """
    found: dict[str, dict[int, int]] = {}
    before = in_kafka(prefix)
    asked = [TopicPartition(before + topic, number) for number in range(partitions)]
    async with Admin(bootstrap, tls) as client:
        for group, *_ in await client.list_consumer_groups():
            committed: Any = await client.list_consumer_group_offsets(group, partitions=asked)
            if len(committed) < partitions:  # an error of the whole answer, which the client passes over
                raise LogUnreachable(f"what {group} has committed is not known")
            there = {at.partition: said.offset for at, said in committed.items() if at.topic == before + topic}
            name = group.removeprefix(before) if group.startswith(before) else f"other group {group}"
            found[name] = {partition: offset for partition, offset in there.items() if offset >= 0}
    return {group: of for group, of in found.items() if of}


async def _described(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], clock: Clock) -> Described:
    """Look until every topic is known or one is wrong, for a while."""
    until_s = clock.monotonic() + _KNOWN_WITHIN_S
    while True:
        found = await _describe(admin, specs)
        lacking = [spec for spec in specs if found.lacks(spec)]
        wrong = any(count and not spec.fits(count) for spec in specs for count in [found.counts.get(spec.name, 0)])
        if not lacking or wrong or clock.monotonic() >= until_s:
            return found
        await clock.sleep(_LOOK_AGAIN_S)


async def _describe(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> Described:
    described: Any = await admin.describe_topics([spec.name for spec in specs])
    configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, s.name) for s in specs])
    counts = {one["topic"]: len(one["partitions"]) for one in described}
    copies = {
        one["topic"]: min(len(p["replicas"]) for p in one["partitions"]) for one in described if counts[one["topic"]]
    }
    return Described(counts, copies, dict(_configs(configs)))


async def _unspoken(bootstrap: str, admin: AIOKafkaAdminClient, tls: SSLContext | None) -> list[str]:
    """Of each broker that answers, what it doesn't take of what we ask."""
    found: list[str] = []
    for address in _addresses(admin):
        try:
            (await connect(address, tls, login_of(bootstrap))).close()
        except Unspoken as lacking:
            found.append(str(lacking))
        except Disconnected:
            continue  # it is away, and asked again by whoever needs it
    return found


def _addresses(admin: AIOKafkaAdminClient) -> list[Address]:
    client = admin._client  # pyright: ignore[reportPrivateUsage]  it has no public way to name the brokers
    return [(broker.host, broker.port) for broker in client.cluster.brokers()]


def _configs(answers: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for answer in answers:
        for _code, _message, _type, name, entries in answer.resources:
            yield name, {entry[0]: entry[1] for entry in entries}


class Admin:
    """An admin client whose failures are ours."""

    def __init__(self, bootstrap: str, tls: SSLContext | None) -> None:
        self._bootstrap = bootstrap
        self._client = AIOKafkaAdminClient(request_timeout_ms=15_000, **client_options(bootstrap, tls))

    async def __aenter__(self) -> AIOKafkaAdminClient:
        try:
            await self._client.start()
        except (KafkaError, NotImplementedError) as error:
            await self._client.close()
            self._refuse(error)
            raise LogUnreachable(f"no broker at {self._bootstrap}: {type(error).__name__}") from None
        return self._client

    async def __aexit__(self, _type: object, error: BaseException | None, _at: object) -> None:
        await self._client.close()
        self._refuse(error)
        if isinstance(error, KafkaError):
            raise LogUnreachable(type(error).__name__) from None

    def _refuse(self, error: BaseException | None) -> None:
        if isinstance(error, (IncompatibleBrokerVersion, NotImplementedError)):  # as aiokafka says it
            raise BrokerRefused(f"the brokers at {self._bootstrap} don't take what is asked of them: {error}") from None
