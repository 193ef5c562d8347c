"""What a tool or a probe is told when a test calls it by itself, outside of any job."""

import math
import time

from aetheris.protocol.base.ids import check_name
from aetheris.protocol.base.keys import external_key, idempotency_key
from aetheris.sdk.context import ProbeContext, ToolContext

JOB = "a-test"
NODE = "call"


def tool_context(
    *, job_id: str = JOB, node_id: str = NODE, attempt: int = 0, within_s: float | None = None
) -> ToolContext:
    """The context of one call: the external key is made as in a job, and the same for the same three names.

    Raises:
        InvalidName: of the job, or of the node.
    """
    return ToolContext(
        external_key=_key(job_id, node_id, attempt),
        attempt=attempt,
        idempotency_key=_call(job_id, node_id),
        job_id=job_id,
        node_id=node_id,
        deadline=_deadline(within_s),
    )


def probe_context(
    *, job_id: str = JOB, node_id: str = NODE, attempt: int = 0, within_s: float | None = None
) -> ProbeContext:
    """The context of a question about the call that had the same `tool_context`.

    Raises:
        InvalidName: of the job, or of the node.
    """
    return ProbeContext(
        external_key=_key(job_id, node_id, attempt),
        idempotency_key=_call(job_id, node_id),
        job_id=job_id,
        node_id=node_id,
        deadline=_deadline(within_s),
    )


def _key(job_id: str, node_id: str, attempt: int) -> str:
    return external_key(check_name(job_id, "job_id"), check_name(node_id, "node_id"), attempt)


def _call(job_id: str, node_id: str) -> str:
    return idempotency_key(job_id, node_id, "tool", {})


def _deadline(within_s: float | None) -> float:
    return math.inf if within_s is None else time.monotonic() + within_s
