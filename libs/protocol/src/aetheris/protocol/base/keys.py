"""The keys of an invocation (docs/architecture.md, "Identity"): what is the same call, inside and outside."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import by_meaning
from aetheris.protocol.base.ids import check_name

Args = Mapping[str, Any]


def canonical_args(args: Args | None) -> bytes:
    """JCS of the arguments; empty or absent arguments contribute zero bytes.

    Raises:
        InvalidArgs: what has no canonical form.
    """
    return canonical(dict(args)) if args else b""


def idempotency_key(job_id: str, node_id: str, tool_name: str, args: Args | None) -> str:
    """hex SHA-256(job_id ␀ node_id ␀ tool_name ␀ canon(args)): one logical invocation, whatever the attempt."""
    check_name(job_id, "job_id")
    check_name(node_id, "node_id")
    return key_of_canonical(job_id, node_id, tool_name, canonical_args(args))


def key_of_canonical(job_id: str, node_id: str, tool_name: str, canonical_bytes: bytes) -> str:
    """`idempotency_key` of names that were checked and arguments that are canonical already."""
    return hashlib.sha256(f"{job_id}\0{node_id}\0{tool_name}\0".encode() + canonical_bytes).hexdigest()


def args_hash(args: Args | None) -> str:
    """hex SHA-256(canon(args))."""
    return hashlib.sha256(canonical_args(args)).hexdigest()


def external_key(job_id: str, node_id: str, attempt_id: int) -> str:
    """What the external system sees; `attempt_id` follows from the fold (x − 1), never from a grant."""
    return f"aetheris:{job_id}:{node_id}:{attempt_id}"


def content_key(tenant: str, tool_name: str, args: Args | None, volatile: Collection[str] = ()) -> str:
    """hex SHA-256("ck1" ␀ tenant ␀ tool_name ␀ canon(args without the volatile fields)): the same by meaning.

    Of a hidden value d and k enter, and not c, which depends on the job.
    """
    meant = by_meaning({name: value for name, value in (args or {}).items() if name not in volatile})
    return content_key_of_canonical(tenant, tool_name, canonical_args(meant))


def content_key_of_canonical(tenant: str, tool_name: str, canonical_bytes: bytes) -> str:
    """`content_key` of arguments that are canonical already and without volatile fields."""
    return hashlib.sha256(f"ck1\0{tenant}\0{tool_name}\0".encode() + canonical_bytes).hexdigest()


def job_key(job_id: str) -> str:
    """What a job's own trace goes by: 64 hex digits, as an idempotency key has."""
    return hashlib.sha256(b"job\0" + job_id.encode()).hexdigest()


def trace_id(key: str) -> str:
    """The 32 hex digits of the trace of an idempotency key: its first 16 bytes."""
    return key[:32]
