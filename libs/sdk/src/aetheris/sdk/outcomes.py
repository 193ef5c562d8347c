"""What a tool, a probe or a verifier says, and what a call came to (docs/tools.md).

    ToolError                  raised by a tool on purpose
    ├── NotExecuted            this try certainly took no effect: it may be tried again
    └── Failed                 there is no effect of this try and never will be

Whatever else leaves a tool that isn't pure says nothing about its effect: the call is in doubt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


class ToolError(Exception):
    """What a tool raises on purpose; the message is recorded, so it may hold no secret."""


class NotExecuted(ToolError):
    """This try certainly took no effect (refused, or given up before anything was sent)."""


class Failed(ToolError):
    """A permanent failure: there is no effect of this try, and there never will be."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One resource outside that a call changed."""

    resource_type: str
    resource_id: str
    operation: str
    version: str | None = None
    etag: str | None = None
    external_ref: str | None = None

    def payload(self) -> dict[str, str]:
        """As it is recorded in state_changed: what isn't known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Result:
    """A tool's result with the id that the external system gave it, and what changed there."""

    value: Any
    external_id: str | None = None
    changes: Iterable[StateChange] = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """A result that stands but is not all that was asked for: it settles as a success, to be compensated."""

    result: Any


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The tool returned. `result` is JSON that has a canonical form."""

    result: Any
    external_id: str | None = None
    changes: tuple[StateChange, ...] = ()
    partial: bool = False
    usage: Mapping[str, Any] | None = None
    """Of a model's answer: what it used."""
    canonical: bytes | None = field(default=None, compare=False, repr=False)
    """The JCS bytes of `result`, where they were made."""


@dataclass(frozen=True, slots=True)
class Retryable:
    """This try certainly took no effect."""

    reason: str


@dataclass(frozen=True, slots=True)
class Permanent:
    """No effect of this try, ever."""

    reason: str


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Nobody here knows whether it took effect; only the error's class is told."""

    error_class: str
    returned: bool = False
    """Its own code has raised, and nothing that it started lives: from here the call can act no more."""


Outcome = Succeeded | Retryable | Permanent | InDoubt


@dataclass(frozen=True, slots=True)
class Found:
    """The external system has the effect of this external key; `result` and `changes` are as the tool returns them."""

    result: Any
    external_id: str | None = None
    evidence: tuple[Any, ...] = ()
    changes: tuple[StateChange, ...] = ()


@dataclass(frozen=True, slots=True)
class NotFound:
    """The external system was asked, answered, and has no effect of this external key."""

    evidence: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """The external system can't be asked now, or can't say."""

    reason: str


Answer = Found | NotFound | Unknown


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The resource is still as the call left it."""

    evidence: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Drifted:
    """The resource is no longer as the call left it; `diff` names the fields, never a secret."""

    diff: Mapping[str, Any]
    evidence: tuple[Any, ...] = ()


Verdict = Confirmed | Drifted | Unknown
