"""The topics, by name: who writes, who reads (docs/architecture.md)."""

from enum import StrEnum


class Topic(StrEnum):
    """A Kafka topic; all but freezes, seals and accesses are keyed by job_id and have the same number of partitions."""

    JOBS_COMMANDS = "aetheris.jobs.commands.v1"
    TOOLS_REQUESTS = "aetheris.tools.requests.v1"
    TOOLS_GRANTS = "aetheris.tools.grants.v1"
    VERIFICATIONS = "aetheris.verifications.v1"
    JOBS_EVENTS = "aetheris.jobs.events.v1"
    PLANNER_CHECKPOINTS = "aetheris.planner.checkpoints.v1"
    LEDGER_CHECKPOINTS = "aetheris.ledger.checkpoints.v1"
    AUDIT_CHECKPOINTS = "aetheris.audit.checkpoints.v1"
    JOBS_INDEX = "aetheris.jobs.index.v1"
    JOBS_ARCHIVE = "aetheris.jobs.archive.v1"
    WORKERS = "aetheris.workers.v1"
    TOOLS_REGISTRY = "aetheris.tools.registry.v1"
    LEDGER_RECORDS = "aetheris.ledger.records.v1"
    LEDGER_CONTENTS = "aetheris.ledger.contents.v1"
    FREEZES = "aetheris.freezes.v1"
    POLICIES = "aetheris.policies.v1"
    JOBS_SEALS = "aetheris.jobs.seals.v1"
    ACCESS_RECORDS = "aetheris.access.records.v1"


def dead_letters(topic: str) -> str:
    """The topic that keeps what could not be decoded from `topic`."""
    return f"{topic}.dlq"
