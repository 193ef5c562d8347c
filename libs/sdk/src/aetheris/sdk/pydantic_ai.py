"""Tools of Aetheris for a pydantic-ai agent that runs elsewhere: each call is a job of its own (docs/agents.md).

A call's job follows from the run's own id, the tool, the arguments and how often the run has made that very call
before. So an agent that crashed and runs again finds what it has done, and goes on from there.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from pydantic_ai import ModelRetry, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from aetheris.protocol.canonical import InvalidArgs, digest
from aetheris.sdk.client import AsyncClient, BadRequest, Job

RunId = str | Callable[[RunContext[Any]], str]
"""What names a run, the same for a run that goes on after a crash."""

_NODE = "call"
_CORRECTIONS = 3
_LOOK_AGAIN_S = 0.1
_EFFECTS = {
    "none": "It took no effect.",
    "confirmed": "It took effect, or a part of it.",
    "possible": "Nobody knows whether it took effect.",
}
_ANYTHING = SchemaValidator(core_schema.any_schema())  # the gateway checks arguments against the tool's schema


class StillRunning(Exception):
    """A call has not ended within `patience_s`; its job goes on, and the same run finds it again."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has not ended yet")
        self.job_id = job_id


class LedgeredToolset(AbstractToolset[Any]):
    """The tools that an agent may call, each call at most once.

    Args:
        tools: names, or patterns of names; no others are shown to the model.
        run_id: names the run: an order, a ticket, a message; or a function of the run's context that gives it.
        url, token: of the gateway; AETHERIS_URL and AETHERIS_TOKEN by default.
        patience_s: how long a call is waited for, a human's approval among it; then StillRunning.
    """

    def __init__(
        self,
        tools: Sequence[str],
        *,
        run_id: RunId,
        url: str | None = None,
        token: str | None = None,
        patience_s: float = 3600.0,
        id: str | None = None,  # noqa: A002 - pydantic-ai's own name
    ) -> None:
        self._patterns = tuple(tools)
        self._run_id = run_id
        self._url = url
        self._token = token
        self._patience_s = patience_s
        self._id = id
        self._made: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._client: AsyncClient | None = None

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
            url=self._url,
            token=self._token,
            patience_s=self._patience_s,
            id=self._id,
        )

    async def __aenter__(self) -> "LedgeredToolset":
        """Connect to the gateway."""
        if self._client is None:
            self._client = AsyncClient(_given(self._url, "AETHERIS_URL"), _given(self._token, "AETHERIS_TOKEN"))
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        """Close the connection; jobs go on."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:  # noqa: ARG002 - pydantic-ai's
        """The registered tools that fit the patterns; where providers don't take a name, `_` stands in it."""
        listed = [one for one in await self._gateway().tools() if self._is_shown(str(one["name"]))]
        self._names = {_shown(str(one["name"])): str(one["name"]) for one in listed}
        if len(self._names) < len(listed):
            raise ValueError("two tools would have the same name for a model: choose them one by one")
        return {shown: self._tool(shown, one) for shown, one in zip(self._names, listed, strict=True)}

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
        client, called = self._gateway(), self._names[name]
        try:
            place = self._place(called, tool_args)
            node = {"id": _NODE, "tool": called, "args": tool_args, "occurrence": place[1]}
            submitted = await client.submit(
                {"nodes": [node]}, session=str(self._run_id)[:200], agent=self._id, idempotency_key=place[0]
            )
        except (BadRequest, InvalidArgs) as refused:
            raise ModelRetry(f"refused, and nothing was called: {refused}") from None
        return _result(await self._ended(submitted.job_id))

    def _place(self, called: str, args: Mapping[str, Any]) -> tuple[str, int]:
        """(the call's own idempotency key, how many equal ones of this run there are with it)."""
        equal = digest([str(self._run_id), called, dict(args)])
        self._made[equal] += 1
        return f"{equal}-{self._made[equal]}", self._made[equal]

    async def _ended(self, job_id: str) -> Job:
        client = self._gateway()
        try:
            async with asyncio.timeout(self._patience_s):
                async for _ in client.follow(job_id):
                    pass
                while not (job := await client.job(job_id)).ended:  # noqa: ASYNC110 - the view may lag the stream
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise StillRunning(job_id) from None
        return job

    def _gateway(self) -> AsyncClient:
        if self._client is None:
            raise RuntimeError("used outside of a run")
        return self._client

    def _is_shown(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def _tool(self, shown: str, entry: Mapping[str, Any]) -> ToolsetTool[Any]:
        description = str(entry.get("description") or "") or None
        schema = cast("dict[str, Any]", entry["schema"])
        definition = ToolDefinition(name=shown, description=description, parameters_json_schema=schema)
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=_CORRECTIONS, args_validator=_ANYTHING)


def _given(value: str | None, variable: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ValueError(f"which gateway? Set {variable}")
    return found


def _shown(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _result(job: Job) -> Any:
    if job.status != "completed":
        step = next(iter(job.steps), None)
        reason = (step.reason if step is not None else None) or job.error or job.status
        raise ToolFailed(f"{reason}. {_EFFECTS[(step.effect if step is not None else None) or 'none']}")
    found = cast("dict[str, Any]", job.result or {})
    return found.get(_NODE, {"done": True, "note": "the result is too large to be shown"})
