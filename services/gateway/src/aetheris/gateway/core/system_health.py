"""How the parts of the system stand, put together of what Kafka says of groups and topics; pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aetheris.protocol.api_operations import (
    DeadLetterCount,
    ExecutorHealth,
    ProcessView,
    ServiceHealth,
    TopicBacklog,
)
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.workers import Name
from aetheris.protocol.messages.registry_lines import DEFAULT_POOL, ExecutorTools
from aetheris.protocol.tables.attendants import Attendant

Place = tuple[str, int]
"""A partition of a topic."""

_EXECUTOR = "tool_executor"
_READS: Mapping[str, tuple[Topic, ...]] = {
    "planner": (Topic.JOBS_COMMANDS, Topic.JOBS_EVENTS),
    "ledger": (Topic.TOOLS_REQUESTS, Topic.JOBS_COMMANDS, Topic.JOBS_EVENTS),
    _EXECUTOR: (Topic.TOOLS_GRANTS, Topic.JOBS_EVENTS),
    "prober": (Topic.VERIFICATIONS,),
    "verifier": (Topic.JOBS_EVENTS,),
    "gateway": (),
}
"""Service → the topics in which its group says what it needs no more."""


@dataclass(frozen=True, slots=True)
class Group:
    """A service, or a pool of executors, by the name that its consumer group has."""

    service: str

    @property
    def name(self) -> str:
        """Of the consumer group."""
        return f"aetheris.{self.service}"

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Where it commits."""
        return _READS[self.service.partition(".")[0]]


@dataclass(frozen=True, slots=True)
class GroupSaid:
    """What the brokers say of a group; `unknown`: why they don't."""

    members: Mapping[str, Attendant] = field(default_factory=dict[str, Attendant])
    committed: Mapping[Place, int] = field(default_factory=dict[Place, int])
    unknown: str | None = None


def groups(pools: Iterable[str]) -> tuple[Group, ...]:
    """Every service's, and one for each pool of executors."""
    others = (f"{_EXECUTOR}.{pool}" for pool in pools if pool != DEFAULT_POOL)
    return tuple(map(Group, (*_READS, *others)))


def service_health(group: Group, said: GroupSaid) -> ServiceHealth:
    """Who is there of a service."""
    there = tuple(ProcessView(name=name, version=one.version) for name, one in sorted(said.members.items()))
    return ServiceHealth(service=group.service, processes=there, unknown=said.unknown)


def backlogs(
    group: Group, said: GroupSaid, begins: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[TopicBacklog]:
    """By topic, how many records lie behind what the group needs no more; a partition without a word counts whole."""
    if said.unknown is not None:
        return
    for topic in group.topics:
        behind = [
            max(0, end - max(begins[place], said.committed.get(place, 0)))
            for place, end in ends.items()
            if place[0] == topic
        ]
        yield TopicBacklog(
            service=group.service,
            topic=topic,
            records=sum(behind),
            partitions=sum(one > 0 for one in behind),
            is_kept=topic == Topic.JOBS_EVENTS,
        )


def dead_letter_counts(begins: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[DeadLetterCount]:
    """Of each topic of dead letters that has some."""
    counts: dict[str, int] = {}
    for place, end in ends.items():
        counts[place[0]] = counts.get(place[0], 0) + end - begins[place]
    for topic, records in sorted(counts.items()):
        if records:
            yield DeadLetterCount(topic=topic, records=records)


def executors(names: Iterable[tuple[str, Name]], lines: Mapping[str, ExecutorTools]) -> Iterator[ExecutorHealth]:
    """Each name, with what the life that it has now says that it serves."""
    for worker_id, name in names:
        line = lines.get(worker_id)
        says = line is not None and name.live is not None and line.incarnation == name.live
        yield ExecutorHealth(
            worker_id=worker_id,
            is_live=name.live is not None,
            since=name.since if name.live is not None else None,
            pool=line.pool if line is not None and says else None,
            serves=tuple(sorted(line.serves)) if line is not None and says else (),
        )
