"""The topics as they must be (docs/architecture.md, "Topics"), and what brokers say of them, judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.base.refusal import StartRefused

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
GROWING = frozenset(
    {
        *(Topic.JOBS_COMMANDS, Topic.TOOLS_REQUESTS, Topic.TOOLS_GRANTS, Topic.VERIFICATIONS, Topic.JOBS_EVENTS),
        *(Topic.PLANNER_CHECKPOINTS, Topic.LEDGER_CHECKPOINTS, Topic.AUDIT_CHECKPOINTS),
        *(Topic.JOBS_ARCHIVE, Topic.LEDGER_RECORDS),
    }
)
"""Those in which a job's records lie in the job's own partition: they may be given more (docs/growing.md). The others
are tables, in which a key's lines lie where its hash points, and must stay."""
MIN_IN_SYNC = 2
IN_SYNC, UNCLEAN, RETENTION = "min.insync.replicas", "unclean.leader.election.enable", "retention.ms"
FOR_EVER = "-1"
RESTORING_RETENTION_MS = str(2**62)
"""Of jobs.events while a backup is laid into it: as long as for ever, and not what services start on."""
_DAY_MS = 24 * 3600 * 1000


class BrokerRefused(StartRefused):
    """The brokers could lose or reorder what was acknowledged; the message names the keys to set."""

    code = "broker_refused"
    passes = True


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it must be; `name` is what the brokers know it by. One that grows may have more partitions."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    grows: bool = False

    def fits(self, count: int) -> bool:
        """Whether it may have so many partitions."""
        return count == self.partitions or (self.grows and count > self.partitions)


def topic_specs(partitions: int, prefix: str = "") -> list[TopicSpec]:
    """Every topic of an installation, dead letters included; `partitions` counts for those keyed by job_id."""
    specs = [
        TopicSpec(in_kafka(prefix) + one, 1 if one in _ONE_PARTITION else partitions, _KINDS[one], one in GROWING)
        for one in Topic
    ]
    return specs + [TopicSpec(dead_letters(spec.name), spec.partitions, _FOREVER, spec.grows) for spec in specs]


@dataclass(frozen=True)
class Assured:
    """What the operator says of brokers that are no Apache Kafka, and so don't tell or don't do it."""

    in_sync: int | None = None
    """By how many replicas a record is acknowledged, where `min.insync.replicas` is not told."""
    retention_days: int | None = None
    """For how long what is to be kept for ever is kept at least, where the brokers bound that."""


NOTHING_ASSURED = Assured()


@dataclass(frozen=True)
class Described:
    """What the brokers say of the topics that they know."""

    counts: Mapping[str, int]
    """Topic → how many partitions it has."""
    copies: Mapping[str, int]
    """Topic → how many replicas its partitions have at least."""
    configs: Mapping[str, Mapping[str, str]]

    def lacks(self, spec: TopicSpec) -> bool:
        """Whether it isn't known, or not whole yet."""
        return not self.counts.get(spec.name) or not self.configs.get(spec.name)


def faults(spec: TopicSpec, found: Described, assured: Assured = NOTHING_ASSURED) -> Iterator[str]:
    """Why records of the topic could be lost, or lie where nobody looks; in words for the operator."""
    count = found.counts.get(spec.name, 0)
    if not spec.fits(count):
        more = " or more" if spec.grows else ""
        yield f"{spec.name}: {count} partitions, must be {spec.partitions}{more} (AETHERIS_PARTITIONS)"
        return
    configs = found.configs.get(spec.name, {})
    for key, value in spec.configs.items():
        told = configs.get(key)
        if key == RETENTION and told == RESTORING_RETENTION_MS:
            yield f"{spec.name}: a backup is being laid into it: `aetheris restore` has not come to its end"
        elif key == RETENTION and value == FOR_EVER and told != value:
            yield from _bounded(spec.name, told, assured)
        elif key == "retention.bytes" and told is None and assured.retention_days is not None:
            continue  # who bounds the time may know no other bound
        elif told is None:
            yield f"{spec.name}: {key} must be {value}, and the brokers don't tell it"
        elif told != value:
            yield f"{spec.name}: {key} must be {value}"


def _bounded(topic: str, told: str | None, assured: Assured) -> Iterator[str]:
    said = "the brokers don't tell it" if told is None else f"it is {told}"
    days = assured.retention_days
    if days is None:
        yield (
            f"{topic}: {RETENTION} must be -1, and {said}; of brokers that keep nothing for ever, say in "
            "AETHERIS_KAFKA_RETENTION_DAYS for how many days they do (docs/kafka.md)"
        )
    elif told is not None and not _lasts(told, days):
        yield f"{topic}: {RETENTION} must be {days * _DAY_MS} or more (AETHERIS_KAFKA_RETENTION_DAYS), and {said}"


def _lasts(told: str, days: int) -> bool:
    return told == FOR_EVER or (told.isdecimal() and int(told) >= days * _DAY_MS)


def risks(spec: TopicSpec, found: Described, assured: Assured = NOTHING_ASSURED) -> Iterator[str]:
    """What one machine's loss could lose, which somebody may want who only tries it out."""
    configs = found.configs.get(spec.name, {})
    told = configs.get(IN_SYNC)
    if told is None and assured.in_sync is None:
        yield (
            f"{spec.name}: the brokers don't tell {IN_SYNC}; of brokers that acknowledge a record by a majority "
            "all the same, say in AETHERIS_KAFKA_IN_SYNC by how many replicas (docs/kafka.md)"
        )
    elif int(told if told is not None else assured.in_sync or 0) < MIN_IN_SYNC:
        yield f"{spec.name}: {IN_SYNC} must be at least {MIN_IN_SYNC}"
    if found.copies.get(spec.name, 0) < MIN_IN_SYNC:
        yield f"{spec.name}: must have at least {MIN_IN_SYNC} replicas"
    if configs.get(UNCLEAN, "false") != "false":
        yield f"{spec.name}: {UNCLEAN} must be false"
