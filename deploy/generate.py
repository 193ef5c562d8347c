"""Write topics.yaml and users.yaml of components that need Strimzi: what the services create and check, as it has that.

Who may write a topic is said in docs/architecture.md; `make docs` runs this, and a test compares. With a prefix and a
folder, `python deploy/generate.py acme FOLDER`, it writes those of another installation on the same brokers.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aetheris.gateway.core.rules_versions import GATEWAY
from aetheris.gateway.ordered_rules import SERVICES
from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base.prefix import in_kafka
from aetheris.runtime.kafka.topics import TopicSpec, topic_specs

COMPONENTS = Path(__file__).parent / "components"
FOLDER = COMPONENTS / "strimzi"
TENANT, TENANTS_FOLDER = "acme", Path(__file__).parent / "overlays" / "tenant" / "shared"
"""The installation of a tenant that the overlay shows."""
PARTITIONS = 12
REPLICAS = 3
IN_SYNC = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
OURS = "aetheris."
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
"""Of a prefix here: Kubernetes' names know neither capitals nor underscores."""


EXECUTORS = "aetheris.tool_executor"
"""The group of the default pool of executors; those of other pools have names that begin with it."""


@dataclass(frozen=True)
class Rights:
    """What one service reads and writes, and which of its topics' records it puts aside."""

    group: str | None
    reads: tuple[Topic, ...]
    writes: tuple[Topic, ...] = ()
    quarantines: tuple[Topic, ...] = ()
    prefixed_group: bool = False
    redrives: tuple[Topic, ...] = ()
    """Of which it notes in their dead letters what was redriven."""
    reads_dead_letters: bool = False
    describes: tuple[str, ...] = ()
    """Groups of which it may know who is in them, and what they have read; `*`: of all."""
    deletes: tuple[Topic, ...] = ()
    checks: bool = True
    """Whether it looks at how all topics are set when it starts, as services do."""


RIGHTS: Mapping[str, Rights] = {
    "gateway": Rights(
        "aetheris.gateway",
        (
            Topic.JOBS_COMMANDS,
            Topic.JOBS_EVENTS,
            Topic.JOBS_INDEX,
            Topic.JOBS_ARCHIVE,
            Topic.TOOLS_REGISTRY,
            Topic.WORKERS,
            Topic.FREEZES,
            Topic.POLICIES,
            Topic.ACCESS_RECORDS,
        ),
        (Topic.JOBS_COMMANDS, Topic.WORKERS, Topic.TOOLS_REGISTRY, Topic.FREEZES, Topic.POLICIES, Topic.ACCESS_RECORDS),
        redrives=(Topic.JOBS_COMMANDS,),
        reads_dead_letters=True,
        describes=(*(f"aetheris.{service}" for service in SERVICES if service != GATEWAY), EXECUTORS),
    ),
    "planner": Rights(
        "aetheris.planner",
        (
            Topic.JOBS_COMMANDS,
            Topic.JOBS_EVENTS,
            Topic.JOBS_INDEX,
            Topic.JOBS_ARCHIVE,
            Topic.PLANNER_CHECKPOINTS,
            Topic.POLICIES,
        ),
        (Topic.JOBS_EVENTS, Topic.JOBS_COMMANDS, Topic.TOOLS_REQUESTS, Topic.JOBS_INDEX, Topic.PLANNER_CHECKPOINTS),
        (Topic.JOBS_COMMANDS, Topic.JOBS_EVENTS),
    ),
    "ledger": Rights(
        "aetheris.ledger",
        (
            Topic.TOOLS_REQUESTS,
            Topic.JOBS_COMMANDS,
            Topic.JOBS_EVENTS,
            Topic.LEDGER_CHECKPOINTS,
            Topic.WORKERS,
            Topic.TOOLS_REGISTRY,
            Topic.LEDGER_CONTENTS,
            Topic.FREEZES,
            Topic.POLICIES,
            Topic.JOBS_ARCHIVE,
        ),
        (
            Topic.JOBS_EVENTS,
            Topic.TOOLS_GRANTS,
            Topic.VERIFICATIONS,
            Topic.LEDGER_CHECKPOINTS,
            Topic.LEDGER_RECORDS,
            Topic.LEDGER_CONTENTS,
            Topic.FREEZES,
            Topic.POLICIES,
        ),
        (Topic.TOOLS_REQUESTS,),
    ),
    "tool-executor": Rights(
        EXECUTORS,
        (Topic.TOOLS_GRANTS, Topic.JOBS_EVENTS, Topic.LEDGER_CHECKPOINTS, Topic.WORKERS, Topic.FREEZES, Topic.POLICIES),
        (Topic.JOBS_EVENTS, Topic.WORKERS, Topic.TOOLS_REGISTRY),
        (Topic.TOOLS_GRANTS,),
        prefixed_group=True,
    ),
    "prober": Rights("aetheris.prober", (Topic.VERIFICATIONS,), (Topic.JOBS_EVENTS,), (Topic.VERIFICATIONS,)),
    "verifier": Rights(
        "aetheris.verifier",
        (
            Topic.JOBS_EVENTS,
            Topic.AUDIT_CHECKPOINTS,
            Topic.JOBS_INDEX,
            Topic.JOBS_ARCHIVE,
            Topic.JOBS_SEALS,
            Topic.POLICIES,
        ),
        (Topic.JOBS_EVENTS, Topic.AUDIT_CHECKPOINTS, Topic.JOBS_ARCHIVE, Topic.JOBS_SEALS),
        (Topic.JOBS_EVENTS,),
    ),
    "notifier": Rights("aetheris.subscriber.notifier", (Topic.JOBS_EVENTS, Topic.JOBS_INDEX), checks=False),
    "scheduler": Rights("aetheris.subscriber.scheduler.", (), prefixed_group=True, checks=False),
    "archiver": Rights(None, (Topic.JOBS_SEALS, Topic.JOBS_EVENTS, Topic.JOBS_INDEX, Topic.JOBS_ARCHIVE), checks=False),
    "subscriber": Rights(
        "aetheris.subscriber.",
        (Topic.JOBS_EVENTS, Topic.JOBS_SEALS, Topic.LEDGER_RECORDS),
        prefixed_group=True,
        checks=False,
    ),
}

DELETION: Mapping[str, Rights] = {
    "archive-deletion": Rights(
        None,
        (Topic.JOBS_EVENTS, Topic.JOBS_INDEX, Topic.JOBS_ARCHIVE),
        describes=("*",),
        deletes=(Topic.JOBS_EVENTS,),
        checks=False,
    )
}
"""Who runs `aetheris archive delete` (docs/archive.md): no service."""


def rendered() -> dict[Path, str]:
    """Every generated file, as it must be; JSON is YAML."""
    return {
        **installation(FOLDER),
        **installation(TENANTS_FOLDER, TENANT),
        COMPONENTS / "archive-deletion" / "users.yaml": _users(DELETION),
    }


def installation(folder: Path, prefix: str = "") -> dict[Path, str]:
    """The topics and users of the installation with this prefix.

    Raises:
        ValueError: Kafka or Kubernetes has no such names.
    """
    if prefix and not _NAME.fullmatch(prefix):
        raise ValueError(
            f"{prefix}: a prefix is of small letters, digits, dots and dashes here, as Kubernetes' names are"
        )
    topics = [_topic(spec) for spec in topic_specs(PARTITIONS, prefix)]
    return {folder / "topics.yaml": _documents(topics), folder / "users.yaml": _users(RIGHTS, prefix)}


def main(*given: str) -> None:
    """Write them; those of a prefix into a folder, where both are given."""
    found = rendered()
    if given:
        prefix, folder = given
        Path(folder).mkdir(parents=True, exist_ok=True)
        found = installation(Path(folder), prefix)
    for path, text in found.items():
        path.write_text(text)


def _users(of: Mapping[str, Rights], prefix: str = "") -> str:
    return _documents([_user(name, rights, prefix) for name, rights in of.items()])


def _topic(spec: TopicSpec) -> Mapping[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": spec.name, "labels": {"strimzi.io/cluster": "aetheris"}},
        "spec": {"partitions": spec.partitions, "replicas": REPLICAS, "config": {**spec.configs, **IN_SYNC}},
    }


def _user(name: str, rights: Rights, prefix: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": f"{prefix or 'aetheris'}-{name}", "labels": {"strimzi.io/cluster": "aetheris"}},
        "spec": {
            "authentication": {"type": "tls"},
            "authorization": {"type": "simple", "acls": list(_acls(rights, in_kafka(prefix)))},
        },
    }


def _acls(rights: Rights, before: str) -> Iterator[Mapping[str, Any]]:
    """`before` is what stands before the name of each topic and group."""
    if rights.checks:
        yield _acl("topic", before + OURS, "prefix", "Describe", "DescribeConfigs")
    for topic in rights.reads:
        yield _acl("topic", before + topic, "literal", "Read")
    for topic in rights.writes:
        yield _acl("topic", before + topic, "literal", "Write")
    for topic in rights.quarantines:
        yield _acl("topic", before + dead_letters(topic), "literal", "Write")
    for topic in Topic if rights.reads_dead_letters else ():
        operations = ("Read", "Write") if topic in rights.redrives else ("Read",)
        yield _acl("topic", before + dead_letters(topic), "literal", *operations)
    for topic in rights.deletes:
        yield _acl("topic", before + topic, "literal", "Delete")
    if rights.group is not None:
        yield _acl("group", before + rights.group, "prefix" if rights.prefixed_group else "literal", "Read")
    for group in rights.describes:
        yield _acl("group", before + group, "prefix" if group == EXECUTORS else "literal", "Describe")


def _acl(kind: str, name: str, pattern: str, *operations: str) -> Mapping[str, Any]:
    resource = {"type": kind, "name": name, "patternType": pattern}
    return {"resource": resource, "operations": list(operations), "host": "*"}


def _documents(found: list[Mapping[str, Any]]) -> str:
    return "".join(f"---\n{json.dumps(one, indent=1)}\n" for one in found)


if __name__ == "__main__":
    main(*sys.argv[1:])
