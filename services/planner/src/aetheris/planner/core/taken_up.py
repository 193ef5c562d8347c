"""What the planner has taken up of jobs.commands, and not folded yet."""

from dataclasses import dataclass

from aetheris.protocol.messages.commands import Cancel


@dataclass(frozen=True, slots=True)
class HeldCancel:
    """A cancel that came before its job's plan was folded."""

    command: Cancel
    command_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class BeingBorn:
    """A submission that was taken up: the hash of its request, and where it lies in jobs.commands."""

    request_hash: str
    offset: int
    is_written: bool
    """Or waits for what its job continues."""
