"""What the core decides: data, carried out by the handler in this order (docs/architecture.md, "A step").

What every step needs is never changed, and yet not `frozen`: its making would be ten times as dear.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aetheris.protocol.messages.commands import (
    ContentRecord,
    FreezeAnswer,
    LedgerRecord,
    PartitionBarrier,
    PolicyAnswer,
    RulesAnswer,
    ToolGrant,
    Verification,
)
from aetheris.protocol.messages.events import Event

ResultsByInvocation = Mapping[str, bytes]
"""invocation_id → what it left in the effect store, as JSON."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time, as data: `mono_s` decides, `wall` only becomes the text of a due time."""

    mono_s: float
    wall: datetime

    def seconds_until(self, moment: str | None) -> float:
        """How far off a recorded moment is by this clock; 0 where it has passed, or there is none."""
        return max(0.0, (datetime.fromisoformat(moment) - self.wall).total_seconds()) if moment is not None else 0.0

    def due_at(self, moment: str | None) -> float:
        """The time of this process's monotonic clock at a recorded moment; never, where there is none."""
        return self.mono_s + self.seconds_until(moment) if moment is not None else float("inf")


@dataclass(frozen=True, slots=True)
class IdentifiedEvent:
    """An event to be appended, and its id."""

    id: str
    event: Event


@dataclass(frozen=True, slots=True)
class Emit:
    """Events of one job that are written whole or not at all; `blobs` must be stored before."""

    job_id: str
    events: tuple[IdentifiedEvent, ...]
    key: str | None = None
    """The idempotency key that it is about, for its trace."""
    blobs: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Grant:
    """A grant, the lease that goes with it, and the context of the request that asked."""

    message: ToolGrant
    lease_ttl_s: float
    parent: bytes | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the external system."""

    message: Verification


@dataclass(frozen=True, slots=True)
class Confirm:
    """A question about a recorded effect, whose resources are to be read from the log."""

    message: Verification


@dataclass(slots=True)
class View:
    """A line of ledger.records."""

    record: LedgerRecord


@dataclass(frozen=True, slots=True)
class DuplicateLine:
    """A line of ledger.contents."""

    record: ContentRecord


@dataclass(frozen=True, slots=True)
class Barrier:
    """A partition's barrier: whatever has to lie in front of it does."""

    message: PartitionBarrier


@dataclass(frozen=True, slots=True)
class Answered:
    """The partition's answer to who ordered a freeze, or its end."""

    message: FreezeAnswer


@dataclass(frozen=True, slots=True)
class PolicyTaken:
    """The partition's answer to who activated a policy."""

    message: PolicyAnswer


@dataclass(frozen=True, slots=True)
class RulesTaken:
    """The partition's answer to who ordered later rules."""

    message: RulesAnswer


Decision = Emit | Grant | Ask | Confirm | View | DuplicateLine | Barrier | Answered | PolicyTaken | RulesTaken


@dataclass(slots=True)
class ToFetch:
    """The first of a round's two phases: what the core must know of the stores before it decides."""

    effects: list[tuple[str, str]] = field(default_factory=list)
    """(job_id, idempotency_key)"""
    leases: list[str] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    """sha256 → size"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was fetched, for the second phase: the stores' answers; what could not be asked is None."""

    effects: Mapping[str, ResultsByInvocation] | None = field(default_factory=dict)
    """By idempotency key; None: the effect store did not answer."""
    held: Mapping[str, bool] | None = field(default_factory=dict)
    """By idempotency key: whether somebody has a lease; None: Redis did not answer."""
    leases_lost_s: float | None = None
    """When, on the monotonic clock, Redis was last found to have lost leases, or not to answer."""
    blobs: Mapping[str, Any] = field(default_factory=dict)
