"""Where a key stands at a position, and what brought it there: the answers of `Validity`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from aetheris.proofs.records import Body, Fact


class Phase(StrEnum):
    """Where a key stands at a position."""

    NONE = "none"
    STARTED = "started"
    PARKED = "parked"
    REOPENED = "reopened"
    SETTLED = "settled"


OPEN = frozenset({Phase.NONE, Phase.REOPENED})


@dataclass(frozen=True, slots=True)
class Handover:
    """What ended a try's tenure without settling its key; `proved`: no try of the key was live after it."""

    at: int
    proved: bool
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalToken:
    """The token that an approval must carry, and since when: a retry by hand of what needed one needs another."""

    token: int = 1
    since: int = -1


@dataclass(slots=True)  # not frozen, though never changed: that makes the making of each dear
class Planned:
    """What the plan in force says of a node: its entry, and its tool's pinned entry. Empty where it says nothing."""

    revision: int
    entry: Body
    tool: Body

    @property
    def irreversible(self) -> bool:
        """Declared by the tool, or raised by the planner."""
        return self.tool.get("irreversible") is True or self.entry.get("irreversible") is True


@dataclass(slots=True)
class Settlement:
    """The record that settled a key: as success, failed or rejected; `sure`: certainly no effect."""

    fact: Fact
    outcome: str
    sure: bool

    @property
    def succeeded(self) -> bool:
        """Its effect stands."""
        return self.outcome == "success"


def is_number(value: object, expected: int) -> bool:
    """Exactly that integer; true is no 1."""
    return type(value) is int and value == expected


def pause_steps(pauses: Iterable[Fact]) -> list[tuple[int, bool]]:
    """By place, whether a pause stands behind it: each has the next number, and ends by its own or for good."""
    steps: list[tuple[int, bool]] = []
    paused, number = False, 0
    for fact in pauses:
        if fact.type == "job_paused":
            counts = not paused and is_number(fact.body.get("number"), number + 1)
            paused, number = paused or counts, number + counts
        elif fact.type == "job_resumed":
            paused = paused and not is_number(fact.body.get("number"), number)
        else:
            return [*steps, (fact.at, False)]
        steps.append((fact.at, paused))
    return steps


def token_of(fact: Fact) -> object:
    """The token that a request or a decision carries; absent is 1."""
    token = fact.body.get("token")
    return 1 if token is None else token
