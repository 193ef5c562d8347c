"""Ids: what a name may look like, and ids derived from their parents (a retry recreates the same id)."""

import re
import uuid

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:aetheris")


class InvalidName(ValueError):
    """A job_id, node_id or attempt outside of `[A-Za-z0-9_.-]{1,64}` (a colon would split the external key)."""

    code = "invalid_name"


def check_name(value: str, field: str) -> str:
    """`value`, if it may be a job_id, node_id or attempt.

    Raises:
        InvalidName: naming `field`.
    """
    if not NAME.fullmatch(value):
        raise InvalidName(f"{field}: must match [A-Za-z0-9_.-]{{1,64}}")
    return value


def derived(*parts: str) -> str:
    """The UUIDv5 of its parents, joined by NUL."""
    return str(uuid.uuid5(_ROOT, "\0".join(parts)))


def job_id_of(tenant: str, idempotency_key: str) -> str:
    """The job that a tenant's Idempotency-Key names: the same key always names the same job."""
    return derived("job", tenant, idempotency_key)


def event_id(job_id: str, event_type: str, *cause: str) -> str:
    """The id of an event; `cause` tells apart whatever may differ (nonce, writer, via, outcome, rung, revision)."""
    return derived("event", job_id, event_type, *cause)


def execution_id(job_id: str, node_id: str, idempotency_key: str) -> str:
    """The id of a step's execution contract."""
    return derived("execution", job_id, node_id, idempotency_key)
