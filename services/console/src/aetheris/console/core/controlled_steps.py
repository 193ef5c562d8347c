"""What becomes of a job's steps when it is paused or cancelled, as they stand now. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from aetheris.protocol.api import StepView

MOST_NAMED = 50
"""Of each kind; a job may have thousands."""


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Some steps of a kind, and how many there are."""

    count: int
    named: Sequence[StepView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledSteps:
    """`started`: under way, settled in any case; `asked`: a person's word is waited for; `doubted`: parked."""

    started: StepGroup
    doubted: StepGroup
    asked: StepGroup
    pending: StepGroup
    done: StepGroup
    """Took effect, as far as is known; what is to be undone is among these."""


def controlled_steps(steps: Sequence[StepView]) -> ControlledSteps:
    """The steps by what becomes of them."""
    return ControlledSteps(
        started=_group([step for step in steps if step.state == "running"]),
        doubted=_group([step for step in steps if _is_doubted(step)]),
        asked=_group([step for step in steps if step.state == "waiting" and not _is_doubted(step)]),
        pending=_group([step for step in steps if step.state == "pending"]),
        done=_group([step for step in steps if step.effect == "confirmed" and step.compensates is None]),
    )


def _is_doubted(step: StepView) -> bool:
    return step.state == "waiting" and bool(step.attempts) and not step.request_id


def _group(steps: Sequence[StepView]) -> StepGroup:
    return StepGroup(len(steps), steps[:MOST_NAMED])
