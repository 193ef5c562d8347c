"""A job that a call of another has begun: its id and its plan are those of that call (docs/workflows.md)."""

import hashlib
import uuid
from typing import Any, cast

from aetheris.proofs.canonical import canonical
from aetheris.proofs.records import Body

_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:aetheris")
START, CONTINUE = "jobs.start", "jobs.continue"


def child_of(job_id: str, node_id: str) -> str:
    """The id of the job that a call has begin."""
    return str(uuid.uuid5(_ROOT, f"child\0{job_id}\0{node_id}"))


def is_of_its_call(created: Body, plan: object) -> bool:
    """Whether a job that says by which call it has begun is that call's; so is one that says nothing of the kind."""
    if created.get("begun") is None:
        return True
    said = _mapping(created["begun"])
    by_job, node = str(said.get("job_id")), str(said.get("node_id"))
    if created.get("job_id") != child_of(by_job, node):
        return False
    nodes = _mapping(plan).get("nodes")
    if not isinstance(nodes, list) or len(cast("list[Any]", nodes)) != 1:
        return False
    entry, replaces = _mapping(cast("list[Any]", nodes)[0]), said.get("replaces") is True
    args: dict[str, Any] = {"workflow": entry.get("tool"), "args": entry.get("args", {})}
    if not replaces:
        args["detached"] = said.get("awaited_by") is None
    try:
        meant = canonical(args)
    except ValueError:
        return False
    called = f"{by_job}\0{node}\0{CONTINUE if replaces else START}\0".encode()
    return said.get("idempotency_key") == hashlib.sha256(called + meant).hexdigest()


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, dict) else {}
