"""Ids: what a name may look like, and ids derived from their parents (a retry recreates the same id)."""

import hashlib
import re
import uuid

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:aetheris")
_SEED = hashlib.sha1(_ROOT.bytes, usedforsecurity=False)
_VARIANT = {digit: f"{int(digit, 16) & 0b11 | 0b1000:x}" for digit in "0123456789abcdef"}
"""The digit that a UUID has in the place of a hash's, as RFC 9562 says."""


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
    """The UUIDv5 of its parents, joined by NUL.

    Every event has such an id, so this is `uuid.uuid5` without the object that it makes.
    """
    seed = _SEED.copy()
    seed.update("\0".join(parts).encode())
    text = seed.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def job_id_of(tenant: str, idempotency_key: str) -> str:
    """The job that a tenant's Idempotency-Key names: the same key always names the same job."""
    return derived("job", tenant, idempotency_key)


def event_id(job_id: str, event_type: str, *cause: str) -> str:
    """The id of an event; `cause` tells apart what may differ (invocation_id, writer, via, outcome, rung, revision)."""
    return derived("event", job_id, event_type, *cause)


def execution_id(job_id: str, node_id: str, idempotency_key: str) -> str:
    """The id of a step's execution contract."""
    return derived("execution", job_id, node_id, idempotency_key)
