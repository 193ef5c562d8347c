"""Requests and answers of sessions (docs/sessions.md), shared by gateway and SDK."""

from typing import Any

from pydantic import Field

from aetheris.protocol.api import Options
from aetheris.protocol.api_models import RequestModel, ResponseModel
from aetheris.protocol.base.ids import NAME
from aetheris.protocol.plan.forms import NamePattern
from aetheris.protocol.plan.graph import Name, ToolName
from aetheris.protocol.planning.sessions import LONGEST_IDLE_S, MOST_ASKS


class SessionAttachBody(RequestModel):
    """The body of POST /sessions: begin a run, or take it over; all but `body` is the same each time."""

    run_id: str = Field(min_length=1, max_length=200)
    tools: tuple[NamePattern, ...] = Field(min_length=1, max_length=500)
    """Names or patterns of the tools that it may call."""
    idle_timeout_s: float = Field(default=86_400.0, gt=0, le=LONGEST_IDLE_S)
    """The run fails when nothing was asked for so long, and no call is open."""
    agent: str | None = Field(default=None, max_length=200)
    options: Options = Options()
    body: Name | None = None
    """A fresh name for this process, the same for a repeat of the request; the gateway makes one where it is absent."""
    beside: bool = False
    """It supersedes nobody, and asks only for what its models want (`by_model`)."""


class _ByBody(RequestModel):
    body: Name
    """As attached."""
    asked: tuple[Name, ...] = Field(default=(), max_length=MOST_ASKS)
    """Of what was recorded when it attached: the calls that it has asked for."""


class SessionCallBody(_ByBody):
    """The body of POST /sessions/{job_id}/calls."""

    tool: ToolName
    args: dict[str, Any] = Field(default_factory=dict)
    id: str | None = Field(default=None, pattern=f"^{NAME.pattern}$")
    """Names the one call; else it is known by its tool, its arguments and `occurrence`."""
    occurrence: int = Field(default=1, ge=1, le=MOST_ASKS)
    """The how many-th equal call of the code this is."""
    by_model: bool = False
    """A model asks: an equal call is the same call, unless it only reads, or surely took no effect."""
    repeat_of: Name | None = None
    """With `by_model`: the call that is to be made once more."""
    node_id: Name | None = None
    """As an earlier answer to this request said: which call is waited for, however it has ended since."""


class SessionCompleteBody(_ByBody):
    """The body of POST /sessions/{job_id}/complete."""

    result: Any = None


class SessionStanding(ResponseModel):
    """Where a run stands for the process that has attached."""

    job_id: str
    body: str
    status: str
    """attached, pending (ask again), or how its job has ended."""
    recorded: list[str] = Field(default_factory=list[str])
    """Calls that must be asked for before any new one that has an effect."""
    result: Any = None
    """Of a run that has completed."""


class SessionCallAnswer(ResponseModel):
    """What came of a call so far."""

    node_id: str | None = None
    status: str
    """open (ask again), success, failed, rejected."""
    sure: bool | None = None
    """Of what is no success: whether there is certainly no effect of it."""
    result: Any = None
    reason: str | None = None
    rejected_by: str | None = None
    duplicate_of: dict[str, Any] | None = None
    external_id: str | None = None
    earlier: bool = False
    """It had ended before it was asked for."""


class SessionCompleted(ResponseModel):
    """Whether a run has ended."""

    job_id: str
    status: str
    """pending (ask again), or how its job has ended."""
