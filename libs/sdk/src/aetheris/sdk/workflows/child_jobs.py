"""Workflows as jobs of their own, begun by another: what may be begun, and the two tools by whose calls that is done.

Such a call does nothing by itself but to be recorded: that it has succeeded is what has the job begin, once, whoever
reads it (docs/workflows.md, "Jobs of its own").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from aetheris.protocol.messages.begun import child_job_id
from aetheris.protocol.plan.graph import JOB_CONTINUE, JOB_START
from aetheris.sdk.context import ToolContext
from aetheris.sdk.tools import AnyTool, tool
from aetheris.sdk.workflows.errors import Misuse

P = ParamSpec("P")
R = TypeVar("R")


class Startable(Generic[P, R]):
    """A workflow, as another sees it that begins it."""

    name: str

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as a plan has them.

        Raises:
            Misuse: they are not what it takes.
        """
        raise NotImplementedError

    @property
    def body(self) -> Callable[..., Any]:
        """Its function."""
        raise NotImplementedError


AnyStartable = Startable[..., Any]


@dataclass(frozen=True, slots=True)
class ChildWorkflows:
    """What a workflow may begin; and itself, in whose place it may go on."""

    starts: Mapping[str, AnyStartable | None] = field(default_factory=dict[str, AnyStartable | None])
    own: AnyStartable | None = None

    def known(self, wanted: AnyStartable | str, *, may_be_own: bool = False) -> tuple[str, AnyStartable | None]:
        """The name of what is wanted, and the workflow where it is at hand.

        Raises:
            Misuse: the workflow doesn't name it.
        """
        name = wanted if isinstance(wanted, str) else wanted.name
        if self.own is not None and name == self.own.name and (may_be_own or name in self.starts):
            return name, self.own
        if name not in self.starts:
            raise Misuse(f"{name}: the workflow doesn't name it among what it starts")
        return name, self.starts[name] if isinstance(wanted, str) else wanted


def job_tools() -> Sequence[AnyTool]:
    """The two tools; what each returns is the id of the job."""

    @tool(JOB_START, effect_class="idempotent")
    async def start(ctx: ToolContext, workflow: str, args: dict[str, Any], detached: bool = False) -> str:  # noqa: ARG001
        """Have a workflow begin as a job of its own (ctx.child, ctx.start)."""
        return child_job_id(ctx.job_id, ctx.node_id)

    @tool(JOB_CONTINUE, effect_class="idempotent")
    async def go_on(ctx: ToolContext, workflow: str, args: dict[str, Any]) -> str:  # noqa: ARG001
        """Have a workflow begin in the place of this job, when that has completed (ctx.continue_as)."""
        return child_job_id(ctx.job_id, ctx.node_id)

    return start, go_on
