"""Tools of Aetheris for a pydantic-ai agent that runs elsewhere: each call is a job of its own (docs/agents.md).

A call's job follows from the run's own id, the tool and the arguments, so an equal call is the same one: a model that
repeats itself, and an agent that crashed and runs again, are given what it came to (`equal_calls`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import ModelRetry, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from aetheris.sdk.adapters.run_tools import given
from aetheris.sdk.call_port import (
    CallableTool,
    CallPort,
    CallRefused,
    NoSuchTool,
    StillRunning,
    by_shown_name,
    callable_tools,
    chosen,
    shown_result,
    shown_schema,
    without_repeat,
)
from aetheris.sdk.client import AsyncClient

__all__ = ["LedgeredToolset", "NoSuchTool", "RunId", "StillRunning"]

RunId = str | Callable[[RunContext[Any]], str]
"""What names a run, the same for a run that goes on after a crash."""

_CORRECTIONS = 3
_ANYTHING = SchemaValidator(core_schema.any_schema())  # the gateway checks arguments against the tool's schema


class LedgeredToolset(AbstractToolset[Any]):
    """The tools that an agent may call, each call at most once.

    Args:
        tools: names, or patterns of names; no others are shown to the model.
        run_id: names the run: an order, a ticket, a message; or a function of the run's context that gives it.
        repeats: which of them a model may call twice with the same arguments in a run, on purpose: names or patterns.
        url, token: of the gateway; AETHERIS_URL and AETHERIS_TOKEN by default.
        patience_s: how long a call is waited for, a human's approval among it; then StillRunning.
    """

    def __init__(
        self,
        tools: Sequence[str],
        *,
        run_id: RunId,
        repeats: Sequence[str] = (),
        url: str | None = None,
        token: str | None = None,
        patience_s: float = 3600.0,
        id: str | None = None,  # noqa: A002 - pydantic-ai's own name
    ) -> None:
        self._patterns = tuple(tools)
        self._run_id = run_id
        self._repeats = tuple(repeats)
        self._url = url
        self._token = token
        self._patience_s = patience_s
        self._id = id
        self._tools: dict[str, CallableTool] = {}
        self._client: AsyncClient | None = None
        self._port: CallPort | None = None

    @property
    def id(self) -> str | None:
        """As pydantic-ai has it."""
        return self._id

    async def for_run(self, ctx: RunContext[Any]) -> "LedgeredToolset":
        """A toolset of this run's own."""
        run_id = self._run_id if isinstance(self._run_id, str) else self._run_id(ctx)
        if not run_id:
            raise ValueError("run_id is empty: every run would be the same")
        return LedgeredToolset(
            self._patterns,
            run_id=run_id,
            repeats=self._repeats,
            url=self._url,
            token=self._token,
            patience_s=self._patience_s,
            id=self._id,
        )

    async def __aenter__(self) -> "LedgeredToolset":
        """Connect to the gateway."""
        if self._client is None:
            self._client = AsyncClient(given(self._url, "AETHERIS_URL"), given(self._token, "AETHERIS_TOKEN"))
            self._port = CallPort(self._client, str(self._run_id), agent=self._id)
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        """Close the connection; jobs go on."""
        if self._client is not None:
            await self._client.close()
            self._client = self._port = None
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:  # noqa: ARG002 - pydantic-ai's
        """The registered tools that fit the patterns; where providers don't take a name, `_` stands in it.

        Raises:
            NoSuchTool: a name or pattern of `tools` or `repeats` that no tool fits; says which was probably meant.
            PersonalTool: one of them has personal arguments: no model calls it.
            ValueError: two of them would have one name, or one that may repeat has an argument `repeat_of` of its own.
        """
        listed = chosen(await self._opened()[0].tools(), self._patterns)
        found = callable_tools(listed, self._repeats)
        self._tools = by_shown_name(found)
        return {shown: self._tool(shown, one) for shown, one in self._tools.items()}

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],  # noqa: ARG002 - pydantic-ai's own signature
        tool: ToolsetTool[Any],  # noqa: ARG002 - so is this
    ) -> Any:
        """Have the call made, or take what it came to before.

        Raises:
            ModelRetry: the arguments are refused, and nothing was called: the model may correct them.
            ToolFailed: the call has failed; says whether it may have taken effect.
            StillRunning, ApiError: nothing is known yet; the same run goes on from here.
        """
        port, called = self._opened()[1], self._tools[name]
        try:
            args, repeat_of = without_repeat(called, tool_args)
            made = await port.call(called, args, repeat_of=repeat_of, within_s=self._patience_s)
        except CallRefused as refused:
            raise ModelRetry(str(refused)) from None
        if not made.succeeded:
            raise ToolFailed(made.failure)
        return shown_result(made, repeats=called.repeats)

    def _opened(self) -> tuple[AsyncClient, CallPort]:
        if self._client is None or self._port is None:
            raise RuntimeError("used outside of a run")
        return self._client, self._port

    def _tool(self, shown: str, called: CallableTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=shown, description=called.description or None, parameters_json_schema=shown_schema(called)
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=_CORRECTIONS, args_validator=_ANYTHING)
