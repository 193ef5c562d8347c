"""The registered tools as a model of somebody else's agent calls them: each call a job, an equal one the same job.

What every adapter stands on: a toolset, the MCP proxy (docs/agents.md). It knows no framework: an adapter shows the
tools, hands a call over, and says in its framework's words what came of it.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

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

REPEAT = "repeat_of"
"""What a model gives, where it may, to make a call once more on purpose: the id of the call before."""
MOST_AWAITED = 10_000
"""Calls that were said to be still running, and of which what they came to was not asked for since."""
DONE_BEFORE = (
    f"This very call was made before in this run, and was not made again: this is what it came to. To make it once "
    f"more on purpose, give its call_id as {REPEAT}."
)
"""What a model is told that may repeat a call on purpose."""

_NODE = "call"
_LOOK_AGAIN_S = 0.1
_NO_SUCH_CALL = (
    f"refused, and nothing was called: no call with these arguments has that id. Leave {REPEAT} out; "
    "the answer to a call that was made before gives its id"
)
_NOTHING = "It took no effect, and may be called again."
_NO_MORE = f"It took no effect, and has failed {MOST_TRIES} times: it is not made again."
_UNKNOWN = "Nobody knows whether it took effect. A human decides what becomes of it: the same call is not made again."
_IN_PART = "It took effect, or a part of it: the same call is not made again."


class NoSuchTool(LookupError):
    """A tool that isn't registered is named, or a pattern that none fits; nothing was called."""


class CallRefused(ValueError):
    """The arguments are refused, and nothing was called: a model may correct them; says what is wrong."""


class StillRunning(Exception):
    """A call has not ended within its time; its job goes on, and an equal call of the same run finds it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has not ended yet")
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A registered tool as the gateway lists it; `repeats`: an equal call may be made once more, on purpose."""

    name: str
    description: str
    schema: Mapping[str, Any]
    volatile: tuple[str, ...] = ()
    only_reads: bool = False
    irreversible: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a call; `earlier`: it was made before, and its job had ended when it was asked for."""

    job: Job
    earlier: bool

    @property
    def succeeded(self) -> bool:
        """Whether there is a result; else `failure` says what happened."""
        return self.job.status == "completed"

    @property
    def has_result(self) -> bool:
        """Whether the result is shown: one that is too large stays in the job."""
        return self.succeeded and _NODE in cast("Mapping[str, Any]", self.job.result or {})

    @property
    def result(self) -> Any:
        """What the tool gave; a note where it is too large to be shown."""
        results = cast("dict[str, Any]", self.job.result or {})
        return results.get(_NODE, {"done": True, "note": "the result is too large to be shown"})

    @property
    def failure(self) -> str:
        """For a model: why there is no result, and whether the call took effect, did not, or nobody knows."""
        job = self.job
        step = next(iter(job.steps), None)
        reason = (step.reason if step is not None else None) or job.error or job.status
        if took_nothing(job):
            return f"{reason}. {_NO_MORE if self.earlier else _NOTHING}"
        return f"{reason}. {_UNKNOWN if is_unknown(job) else _IN_PART}"


class CallPort:
    """The calls of one run: any number at a time.

    Args:
        client: of the gateway; its owner closes it.
        run_id: names the run, the same for one that goes on after a crash, and for no other.
        agent: who calls, as freezes and lists name it.
        reads: names what is read: by default the run, so that a run that starts again finds in its order what it
            read before. Where it is new for each start, what only reads is always read anew.
    """

    def __init__(
        self,
        client: AsyncClient,
        run_id: str,
        *,
        agent: str | None = None,
        reads: str | None = None,
    ) -> None:
        if not run_id:
            raise ValueError("run_id is empty: every run would be the same")
        self._client = client
        self._run_id = run_id
        self._agent = agent
        self._reads = reads or run_id
        self._read: dict[str, EqualCallKey] = {}
        self._awaited: dict[str, tuple[str, EqualCallKey]] = {}

    async def call(
        self,
        tool: CallableTool,
        args: Mapping[str, Any],
        *,
        repeat_of: str | None = None,
        within_s: float | None = None,
    ) -> CallOutcome:
        """Have the call made, or take what it came to before.

        `repeat_of`: the id of an equal call that succeeded, to make it once more; `within_s`: how long it is awaited.

        Raises:
            CallRefused: nothing was called.
            StillRunning: it has not ended; what it comes to is what the next equal call is given.
            ApiError: nothing is known; an equal call of the same run goes on from here.
        """
        job_id, start, place, earlier = await self._made(tool, args, repeat_of)
        if earlier is None:
            try:
                job = await self._ended(job_id, within_s)
            except StillRunning:
                self._await(start, job_id, place)
                raise
        else:
            job = earlier
        self._awaited.pop(start.key, None)
        if tool.only_reads:
            self._read[start.key] = place.again(job.job_id)
        return CallOutcome(job, earlier is not None)

    async def begin(self, tool: CallableTool, args: Mapping[str, Any], *, repeat_of: str | None = None) -> str:
        """Have the call made, and wait for nothing; returns its job's id, for `outcome`. Raises as `call` does."""
        job_id, start, place, earlier = await self._made(tool, args, repeat_of)
        if tool.only_reads:
            self._read[start.key] = place.again(job_id)
        elif earlier is None:
            self._await(start, job_id, place)
        return job_id

    async def outcome(self, job_id: str, within_s: float | None = None) -> CallOutcome:
        """What a call came to whose job is known. Raises StillRunning, ApiError."""
        return CallOutcome(await self._ended(job_id, within_s), earlier=False)

    async def _made(
        self, tool: CallableTool, args: Mapping[str, Any], repeat_of: str | None
    ) -> tuple[str, EqualCallKey, EqualCallKey, Job | None]:
        """Its job, where it was asked for first, where it was found, and the job where it had ended before."""
        if repeat_of is not None and not NAME.fullmatch(repeat_of):
            raise CallRefused(_NO_SUCH_CALL)

        async def submit(key: str, occurrence: int) -> Submitted:
            node = {"id": _NODE, "tool": tool.name, "args": dict(args), "occurrence": occurrence}
            return await self._client.submit(
                {"nodes": [node]}, session=self._run_id[:200], agent=self._agent, idempotency_key=key
            )

        try:
            digest(args)  # all of them: what makes no other call may be no JSON either
            first = self._first(tool, args)
            start = first if repeat_of is None else await place_of_repeat(self._client, first, repeat_of)
            if start.key in self._awaited:  # else a call that a human refused meanwhile would be asked for again
                job_id, place = self._awaited[start.key]
                return job_id, start, place, None
            made = await found(submit, self._client, self._read.get(start.key, start))
        except NoSuchCall:
            raise CallRefused(_NO_SUCH_CALL) from None
        except (BadRequest, InvalidArgs) as refused:
            raise CallRefused(f"refused, and nothing was called: {refused}") from None
        return made.job_id, start, made.place, made.earlier

    def _first(self, tool: CallableTool, args: Mapping[str, Any]) -> EqualCallKey:
        run = self._reads if tool.only_reads else self._run_id
        return EqualCallKey(digest([run, tool.name, meant(args, tool.schema, tool.volatile)]))

    def _await(self, start: EqualCallKey, job_id: str, place: EqualCallKey) -> None:
        self._awaited[start.key] = (job_id, place)
        if len(self._awaited) > MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    async def _ended(self, job_id: str, within_s: float | None) -> Job:
        try:
            async with asyncio.timeout(within_s):
                async for _ in self._client.follow(job_id):
                    pass
                while not (job := await self._client.job(job_id)).ended:  # noqa: ASYNC110 - the view may lag the stream
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise StillRunning(job_id) from None
        return job


def callable_tools(registered: Sequence[Mapping[str, Any]], repeats: Sequence[str] = ()) -> list[CallableTool]:
    """Registered tools as a model may call them; those that fit a pattern of `repeats` may be called once more.

    Raises:
        NoSuchTool: a pattern of `repeats` that none fits.
        PersonalTool: one of them has personal arguments: no model calls it.
        ValueError: one that may repeat has an argument `repeat_of` of its own.
    """
    all_fit("repeats", repeats, [str(one["name"]) for one in registered])
    return [_callable(one, repeats) for one in registered]


def chosen(registered: Sequence[Mapping[str, Any]], patterns: Sequence[str]) -> list[Mapping[str, Any]]:
    """Those that fit one of the patterns.

    Raises:
        NoSuchTool: a name or pattern that no tool fits; says which was probably meant.
    """
    all_fit("tools", patterns, [str(one["name"]) for one in registered])
    return [one for one in registered if fits(str(one["name"]), patterns)]


def by_shown_name(tools: Sequence[CallableTool]) -> dict[str, CallableTool]:
    """Tools under names that providers take: `_` stands for what they don't.

    Raises:
        ValueError: two would have one name.
    """
    found = {re.sub(r"[^A-Za-z0-9_-]", "_", one.name): one for one in tools}
    if len(found) < len(tools):
        raise ValueError("two tools would have the same name for a model: choose them one by one")
    return found


def shown_schema(tool: CallableTool) -> dict[str, Any]:
    """The schema that a model is shown."""
    return with_repeat(tool.schema) if tool.repeats else dict(tool.schema)


def shown_result(made: CallOutcome, *, repeats: bool) -> Any:
    """A result for a model; of a call that was made before, and may be repeated, also how."""
    if made.earlier and repeats:
        return {"call_id": made.job.job_id, "result": made.result, "note": DONE_BEFORE}
    return made.result


def with_repeat(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema with the argument by which a model says that it means a call once more."""
    return dict(schema) | {"properties": schema.get("properties", {}) | {REPEAT: _REPEAT_SCHEMA}}


def without_repeat(tool: CallableTool, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The tool's own arguments, and the id of what is to be repeated.

    Raises:
        CallRefused: that is no id.
    """
    if not tool.repeats:
        return dict(given), None
    repeat_of = given.get(REPEAT)
    if repeat_of in (None, ""):
        repeat_of = None
    elif not isinstance(repeat_of, str):
        raise CallRefused(_NO_SUCH_CALL)
    return {name: value for name, value in given.items() if name != REPEAT}, repeat_of


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of them, or fits a pattern of them."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def all_fit(where: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    """Raises NoSuchTool: a pattern that none of the names fits."""
    for pattern in patterns:
        if not any(fits(name, [pattern]) for name in names):
            near = like(pattern, names)
            meant = f"did you mean {near}?" if near is not None else f"there are {', '.join(sorted(names)) or 'none'}"
            raise NoSuchTool(f"{where}: no tool {pattern} is there; {meant}")


_REPEAT_SCHEMA = {
    "type": "string",
    "description": "Leave it out. The id of an earlier, equal call, only to make that call once more on purpose.",
}


def _callable(entry: Mapping[str, Any], repeats: Sequence[str]) -> CallableTool:
    name, schema = str(entry["name"]), cast("dict[str, Any]", entry["schema"])
    check_callable(name, schema)
    may_repeat = fits(name, repeats)
    if may_repeat and REPEAT in schema.get("properties", {}):
        raise ValueError(f"{name} has an argument {REPEAT} of its own: it can't be one that may repeat")
    return CallableTool(
        name,
        str(entry.get("description") or ""),
        schema,
        tuple(map(str, entry.get("volatile", ()))),
        entry.get("effect_class") == "pure",
        bool(entry.get("irreversible")),
        may_repeat,
    )
