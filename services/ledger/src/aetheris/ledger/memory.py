"""What the ledger remembers of a live job beside its fold; all of it is made again from the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aetheris.ledger.decisions import Decision
from aetheris.ledger.limits import Limits
from aetheris.ledger.policy import Policy
from aetheris.protocol.fold import JobState

WorkerLife = tuple[str, str]
"""worker_id, incarnation"""


@dataclass(frozen=True, slots=True)
class Terms:
    """What decisions follow; `fresh_id` and `jitter` (0 to 1) are the only things not derived."""

    policy: Policy
    limits: Limits
    fresh_id: Callable[[], str]
    jitter: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one thing now, and when to look at it again; `due_s` None: not by the clock."""

    decisions: Sequence[Decision] = ()
    due_s: float | None = None


@dataclass(slots=True)
class Pending:
    """A node that the planner asked for and nobody has started."""

    nodes: tuple[str, ...]
    offset: int | None
    """Of the request; None where a human's yes is what asks."""
    parent: bytes | None
    due_s: float
    grants: int = 0


@dataclass(slots=True)
class Started:
    """A try in charge, and what is known of its end."""

    nonce: str
    life: WorkerLife
    due_s: float
    cause: str | None = None
    """Why it is doubted; None while its lease may still speak for it."""
    doubt_s: float | None = None
    ended_s: float | None = None
    """When this process had folded the end of the try's worker: settles_within counts from here."""
    blind: int = 0
    """Looks in vain at an effect store that did not answer."""
    ask: tuple[str, float] | None = None
    """The question under way: its id, and when it was sent."""
    absent_s: float | None = None
    """When the last question that was answered "not found" was sent."""
    unknowns: int = 0
    next_ask_s: float = 0.0


@dataclass(slots=True)
class Reopened:
    """A key that is free for its next try."""

    due_s: float
    after_proof: bool
    """Its last try reported that it took no effect: the plan's retry decides when, and whether, it goes on."""
    scheduled: bool = False
    grants: int = 0


@dataclass(slots=True)
class LiveJob:
    """A job's fold, and the ledger's memory of it."""

    state: JobState
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    keys: dict[str, Started | Reopened] = field(default_factory=dict[str, Started | Reopened])
    parked: dict[str, str] = field(default_factory=dict[str, str])
    """execution_id → key"""
    announced: set[WorkerLife] = field(default_factory=set[WorkerLife])
