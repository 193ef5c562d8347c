"""The topics as they must be, made and checked (docs/architecture.md, "Topics")."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, for_code

from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.log.interface import LogUnreachable, Place

_log = structlog.get_logger(__name__)

_FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED = {"cleanup.policy": "compact"}
_KEPT_AN_HOUR = {"min.compaction.lag.ms": str(3600 * 1000)}
"""So long a reader sees every record of a key, and so which of two that were written at once was first."""
_WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}

_KINDS: Mapping[Topic, Mapping[str, str]] = {
    Topic.JOBS_EVENTS: _FOREVER,
    Topic.FREEZES: _FOREVER,
    Topic.POLICIES: _FOREVER,
    Topic.JOBS_SEALS: _FOREVER,
    Topic.JOBS_COMMANDS: _FOREVER,
    Topic.ACCESS_RECORDS: {"cleanup.policy": "delete", "retention.ms": str(400 * 24 * 3600 * 1000)},
    Topic.TOOLS_REQUESTS: _WEEK,
    Topic.TOOLS_GRANTS: _WEEK,
    Topic.VERIFICATIONS: _WEEK,
    Topic.PLANNER_CHECKPOINTS: _COMPACTED,
    Topic.LEDGER_CHECKPOINTS: _COMPACTED,
    Topic.AUDIT_CHECKPOINTS: _COMPACTED,
    Topic.JOBS_INDEX: _COMPACTED,
    Topic.JOBS_ARCHIVE: _COMPACTED,
    Topic.WORKERS: _COMPACTED | _KEPT_AN_HOUR,
    Topic.TOOLS_REGISTRY: _COMPACTED,
    Topic.LEDGER_RECORDS: _COMPACTED,
    Topic.LEDGER_CONTENTS: {"cleanup.policy": "compact,delete", "retention.ms": str(31 * 24 * 3600 * 1000)},
}
_ONE_PARTITION = frozenset({Topic.FREEZES, Topic.POLICIES, Topic.JOBS_SEALS, Topic.ACCESS_RECORDS})
_TOPIC_ALREADY_EXISTS = 36
_RETENTION = "retention.ms"
RESTORING_RETENTION_MS = str(2**62)
"""Of jobs.events while a backup is laid into it: as long as for ever, and not what services start on."""
_OF_TOPIC = 1
"""Where describe_configs says that a setting comes from: the topic itself."""
_MIN_IN_SYNC = 2

_KNOWN_WITHIN_S = 10.0
"""A topic that another service has just created is not known to every broker at once: for so long it is looked for."""
_LOOK_AGAIN_S = 0.2


class BrokerRefused(StartRefused):
    """The brokers could lose or reorder what was acknowledged; the message names the keys to set."""

    code = "broker_refused"
    passes = True


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it must be; `name` is what the brokers know it by."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


def topic_specs(partitions: int, prefix: str = "") -> list[TopicSpec]:
    """Every topic of an installation, dead letters included; `partitions` counts for those keyed by job_id."""
    specs = [
        TopicSpec(in_kafka(prefix) + topic, 1 if topic in _ONE_PARTITION else partitions, _KINDS[topic])
        for topic in Topic
    ]
    return specs + [TopicSpec(dead_letters(spec.name), spec.partitions, _FOREVER) for spec in specs]


async def ensure_topics(
    bootstrap: str, partitions: int, replication: int = 1, *, tls: SSLContext | None = None, prefix: str = ""
) -> list[str]:
    """Create the topics that don't exist; those that do are left as they are. The created ones, by their whole names.

    Raises:
        LogUnreachable: no broker answers, or one refuses.
    """
    in_sync = {"min.insync.replicas": str(min(_MIN_IN_SYNC, replication)), "unclean.leader.election.enable": "false"}
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


async def set_restoring(
    bootstrap: str, *, restoring: bool, tls: SSLContext | None = None, prefix: str = "", clock: Clock | None = None
) -> None:
    """Let services refuse jobs.events until a backup is whole in it, or start on it again; the brokers say so by then.

    Raises:
        LogUnreachable: no broker answers, or one refuses, or none has taken it over in ten seconds.
    """
    name, clock = in_kafka(prefix) + Topic.JOBS_EVENTS, clock or SystemClock()
    wanted = RESTORING_RETENTION_MS if restoring else _FOREVER[_RETENTION]
    async with Admin(bootstrap, tls) as admin:
        own = {**await _own_settings(admin, name), _RETENTION: wanted}
        altered: Any = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, own)])
        for code, *_ in (one for answer in altered for one in answer.resources):
            if code:
                raise LogUnreachable(f"{name} can't be altered: {for_code(code).__name__}")
        until_s = clock.monotonic() + _KNOWN_WITHIN_S
        while (await _own_settings(admin, name)).get(_RETENTION) != wanted:  # a broker answers before it has it
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
) -> None:
    """Refuse to run where an acknowledged record could be lost or a key could move.

    `dev` lets too few replicas pass, with a warning. Topics that no broker knows are waited for, for ten seconds.

    Raises:
        BrokerRefused: naming every topic and key that is wrong.
        LogUnreachable: no broker answers.
    """
    specs = topic_specs(partitions, prefix)
    async with Admin(bootstrap, tls) as admin:
        looked = await _looked(admin, specs, clock or SystemClock())
    wrong = [fault for spec in specs for fault in _faults(spec, looked)]
    risky = [fault for spec in specs for fault in _risks(spec, looked)]
    if dev and risky:
        _log.warning("acknowledged records could be lost (allowed by dev)", wrong=len(risky), first=risky[0])
    refused = wrong if dev else wrong + risky
    if refused:
        raise BrokerRefused("; ".join(refused))


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


@dataclass(frozen=True)
class _Looked:
    """What the brokers say of the topics that they know."""

    counts: Mapping[str, int]
    """Topic → how many partitions it has."""
    copies: Mapping[str, int]
    """Topic → how many replicas its partitions have at least."""
    configs: Mapping[str, Mapping[str, str]]

    def lacks(self, spec: TopicSpec) -> bool:
        """Whether it isn't known, or not whole yet."""
        return not self.counts.get(spec.name) or not self.configs.get(spec.name)


async def _looked(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], clock: Clock) -> _Looked:
    """Look until every topic is known or one is wrong, for a while."""
    until_s = clock.monotonic() + _KNOWN_WITHIN_S
    while True:
        looked = await _look(admin, specs)
        lacking = [spec for spec in specs if looked.lacks(spec)]
        wrong = any(looked.counts.get(spec.name, 0) not in (0, spec.partitions) for spec in specs)
        if not lacking or wrong or clock.monotonic() >= until_s:
            return looked
        await clock.sleep(_LOOK_AGAIN_S)


async def _look(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> _Looked:
    described: Any = await admin.describe_topics([spec.name for spec in specs])
    configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, s.name) for s in specs])
    counts = {one["topic"]: len(one["partitions"]) for one in described}
    copies = {
        one["topic"]: min(len(p["replicas"]) for p in one["partitions"]) for one in described if counts[one["topic"]]
    }
    return _Looked(counts, copies, dict(_configs(configs)))


def _faults(spec: TopicSpec, looked: _Looked) -> Iterator[str]:
    count = looked.counts.get(spec.name, 0)
    if count != spec.partitions:
        yield f"{spec.name}: {count} partitions, must be {spec.partitions}"
        return
    configs = looked.configs.get(spec.name, {})
    for key, value in spec.configs.items():
        if key == _RETENTION and configs.get(key) == RESTORING_RETENTION_MS:
            yield f"{spec.name}: a backup is being laid into it: `aetheris restore` has not come to its end"
        elif configs.get(key) != value:
            yield f"{spec.name}: {key} must be {value}"


def _risks(spec: TopicSpec, looked: _Looked) -> Iterator[str]:
    configs = looked.configs.get(spec.name, {})
    if int(configs.get("min.insync.replicas", "1")) < _MIN_IN_SYNC:
        yield f"{spec.name}: min.insync.replicas must be at least {_MIN_IN_SYNC}"
    if looked.copies.get(spec.name, 0) < _MIN_IN_SYNC:
        yield f"{spec.name}: must have at least {_MIN_IN_SYNC} replicas"
    if configs.get("unclean.leader.election.enable", "false") != "false":
        yield f"{spec.name}: unclean.leader.election.enable must be false"


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
        except KafkaError as error:
            await self._client.close()
            raise LogUnreachable(f"no broker at {self._bootstrap}: {type(error).__name__}") from None
        return self._client

    async def __aexit__(self, _type: object, error: BaseException | None, _at: object) -> None:
        await self._client.close()
        if isinstance(error, KafkaError):
            raise LogUnreachable(type(error).__name__) from None
