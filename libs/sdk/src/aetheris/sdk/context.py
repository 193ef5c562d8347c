"""What a tool or a probe is told about the call it is part of (docs/tools.md)."""

import math
import time
from dataclasses import dataclass

_NEVER = math.inf


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One try of one call.

    `external_key` is what the external system is to see; `attempt` is its last part. `deadline` is a time.monotonic()
    value; `traceparent` is to be passed on to the external system.
    """

    external_key: str
    attempt: int
    idempotency_key: str
    job_id: str
    node_id: str
    deadline: float = _NEVER
    traceparent: str | None = None

    def remaining(self) -> float:
        """Seconds left, never negative; infinite where there is no deadline."""
        return max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """One question to the external system about the call that carried `external_key`."""

    external_key: str
    idempotency_key: str
    job_id: str
    node_id: str
    deadline: float = _NEVER
    traceparent: str | None = None

    def remaining(self) -> float:
        """Seconds left, never negative; infinite where there is no deadline."""
        return max(0.0, self.deadline - time.monotonic())
