"""Tools of Aetheris for a pydantic-ai agent that runs elsewhere: each call is a job of its own (docs/agents.md).

A call's job follows from the run's own id, the tool and the arguments, so an equal call is the same one: a model that
repeats itself, and an agent that crashed and runs again, are given what it came to (`equal_calls`).
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from pydantic_ai import ModelRetry, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.faults import like
from aetheris.protocol.base.ids import NAME
from aetheris.sdk.client import AsyncClient, BadRequest, Job, Submitted
from aetheris.sdk.equal_calls import (
    MOST_TRIES,
    EqualCallKey,
    NoSuchCall,
    check_callable,
    found,
    is_unknown,
    meant,
    place_of_repeat,
    took_nothing,
)

RunId = str | Callable[[RunContext[Any]], str]
"""What names a run, the same for a run that goes on after a crash."""

_NODE = "call"
_CORRECTIONS = 3
_LOOK_AGAIN_S = 0.1
REPEAT = "repeat_of"
"""What a model gives, where it may, to make a call once more on purpose: the id of the call before."""

_REPEAT_SCHEMA = {
    "type": "string",
    "description": "Leave it out. The id of an earlier, equal call, only to make that call once more on purpose.",
}
_DONE_BEFORE = (
    f"This very call was made before in this run, and was not made again: this is what it came to. To make it once "
    f"more on purpose, give its call_id as {REPEAT}."
)
_NO_SUCH_CALL = (
    f"refused, and nothing was called: no call with these arguments has that id. Leave {REPEAT} out; "
    "the answer to a call that was made before gives its id"
)
_NOTHING = "It took no effect, and may be called again."
_NO_MORE = f"It took no effect, and has failed {MOST_TRIES} times: it is not made again."
_UNKNOWN = "Nobody knows whether it took effect. A human decides what becomes of it: the same call is not made again."
_IN_PART = "It took effect, or a part of it: the same call is not made again."
_ANYTHING = SchemaValidator(core_schema.any_schema())  # the gateway checks arguments against the tool's schema


class NoSuchTool(LookupError):
    """A toolset names a tool that isn't registered, or a pattern that none fits; nothing was called."""


class StillRunning(Exception):
    """A call has not ended within `patience_s`; its job goes on, and the same run finds it again."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has not ended yet")
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class _Registered:
    """A tool as the gateway lists it."""

    name: str
    schema: Mapping[str, Any]
    volatile: tuple[str, ...]
    only_reads: bool
    repeats: bool


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
        self._read: dict[str, EqualCallKey] = {}
        self._tools: dict[str, _Registered] = {}
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
            repeats=self._repeats,
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
        """The registered tools that fit the patterns; where providers don't take a name, `_` stands in it.

        Raises:
            NoSuchTool: a name or pattern of `tools` or `repeats` that no tool fits; says which was probably meant.
            PersonalTool: one of them has personal arguments: no model calls it.
            ValueError: two of them would have one name, or one that may repeat has an argument `repeat_of` of its own.
        """
        registered = await self._gateway().tools()
        _all_fit("tools", self._patterns, [str(one["name"]) for one in registered])
        listed = [one for one in registered if _fits(str(one["name"]), self._patterns)]
        _all_fit("repeats", self._repeats, [str(one["name"]) for one in listed])
        for one in listed:
            check_callable(str(one["name"]), cast("dict[str, Any]", one["schema"]))
        self._tools = {_shown(str(one["name"])): self._registered(one) for one in listed}
        if len(self._tools) < len(listed):
            raise ValueError("two tools would have the same name for a model: choose them one by one")
        return {shown: self._tool(shown, one) for shown, one in zip(self._tools, listed, strict=True)}

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
        client, called = self._gateway(), self._tools[name]
        args, repeat_of = _without_repeat(called, tool_args)

        async def submit(key: str, occurrence: int) -> Submitted:
            node = {"id": _NODE, "tool": called.name, "args": args, "occurrence": occurrence}
            session = str(self._run_id)[:200]
            return await client.submit({"nodes": [node]}, session=session, agent=self._id, idempotency_key=key)

        try:
            first = self._first(called, args)
            start = first if repeat_of is None else await place_of_repeat(client, first, repeat_of)
            made = await found(submit, client, self._read.get(start.key, start))
        except NoSuchCall:
            raise ModelRetry(_NO_SUCH_CALL) from None
        except (BadRequest, InvalidArgs) as refused:
            raise ModelRetry(f"refused, and nothing was called: {refused}") from None
        job = made.earlier or await self._ended(made.job_id)
        if called.only_reads:
            self._read[start.key] = made.place.again(job.job_id)
        return _result(job, earlier=made.earlier is not None, repeats=called.repeats)

    def _first(self, called: _Registered, args: Mapping[str, Any]) -> EqualCallKey:
        return EqualCallKey(digest([str(self._run_id), called.name, meant(args, called.schema, called.volatile)]))

    def _registered(self, entry: Mapping[str, Any]) -> _Registered:
        name, schema = str(entry["name"]), cast("dict[str, Any]", entry["schema"])
        repeats = _fits(name, self._repeats)
        if repeats and REPEAT in schema.get("properties", {}):
            raise ValueError(f"{name} has an argument {REPEAT} of its own: it can't be one that may repeat")
        volatile = tuple(map(str, entry.get("volatile", ())))
        return _Registered(name, schema, volatile, entry.get("effect_class") == "pure", repeats)

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

    def _tool(self, shown: str, entry: Mapping[str, Any]) -> ToolsetTool[Any]:
        description = str(entry.get("description") or "") or None
        schema = cast("dict[str, Any]", entry["schema"])
        if self._tools[shown].repeats:
            schema = schema | {"properties": schema.get("properties", {}) | {REPEAT: _REPEAT_SCHEMA}}
        definition = ToolDefinition(name=shown, description=description, parameters_json_schema=schema)
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=_CORRECTIONS, args_validator=_ANYTHING)


def _given(value: str | None, variable: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise ValueError(f"which gateway? Set {variable}")
    return found


def _shown(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _all_fit(where: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_fits(name, [pattern]) for name in names):
            near = like(pattern, names)
            meant = f"did you mean {near}?" if near is not None else f"there are {', '.join(sorted(names)) or 'none'}"
            raise NoSuchTool(f"{where}: no tool {pattern} is there; {meant}")


def _without_repeat(called: _Registered, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The tool's own arguments, and the id of what is to be repeated."""
    if not called.repeats:
        return dict(given), None
    repeat_of = given.get(REPEAT)
    if repeat_of in (None, ""):
        repeat_of = None
    elif not isinstance(repeat_of, str) or not NAME.fullmatch(repeat_of):
        raise ModelRetry(_NO_SUCH_CALL)
    return {name: value for name, value in given.items() if name != REPEAT}, repeat_of


def _result(job: Job, *, earlier: bool, repeats: bool) -> Any:
    if job.status != "completed":
        raise ToolFailed(_failure(job, earlier=earlier))
    results = cast("dict[str, Any]", job.result or {})
    result = results.get(_NODE, {"done": True, "note": "the result is too large to be shown"})
    return {"call_id": job.job_id, "result": result, "note": _DONE_BEFORE} if earlier and repeats else result


def _failure(job: Job, *, earlier: bool) -> str:
    step = next(iter(job.steps), None)
    reason = (step.reason if step is not None else None) or job.error or job.status
    if took_nothing(job):
        return f"{reason}. {_NO_MORE if earlier else _NOTHING}"
    return f"{reason}. {_UNKNOWN if is_unknown(job) else _IN_PART}"
