"""Functions of a workflow's own module as calls: recorded as any call of a tool, made in the process of its body.

Each is a call of one of two tools that every executor of workflows has: of one that only reads, and of one that nobody
can look up afterwards. What the function itself says or holds is not recorded, but its name, arguments and result are.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aetheris.protocol.plan.graph import LOCAL_ACT, LOCAL_READ
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.tools import AnyTool, tool

LONGEST_S = 300.0
"""How long such a function may run."""

LocalFunction = Callable[[], Any]
"""One with its arguments; async or not."""
RunLocal = Callable[[ToolContext], Awaitable[Result | Partial]]
"""Has the body's process run what its body has asked for as this call.

Raises:
    NotExecuted: no body here has asked for it.
    Failed, RaisedElsewhere: as the function has.
"""


def local_tools(run: RunLocal) -> Sequence[AnyTool]:
    """The two tools, whose calls `run` makes."""

    @tool(LOCAL_READ, effect_class="pure", timeout_s=LONGEST_S)
    async def local_read(ctx: ToolContext, name: str, args: list[Any]) -> Any:  # noqa: ARG001  they are its own
        """A function of a workflow's own module that only reads (ctx.record)."""
        return await run(ctx)

    @tool(LOCAL_ACT, effect_class="opaque", irreversible=False, timeout_s=LONGEST_S)
    async def local_act(ctx: ToolContext, name: str, args: list[Any]) -> Any:  # noqa: ARG001
        """A function of a workflow's own module that may leave something behind (ctx.record)."""
        return await run(ctx)

    return local_read, local_act


async def called(function: LocalFunction) -> Any:
    """What it returns."""
    returned = function()
    return await returned if inspect.isawaitable(returned) else returned
