"""What a workflow's code calls others through: each call is recorded, and is made once (docs/workflows.md)."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, TypeVarTuple, get_args, overload
from uuid import UUID

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from aetheris.protocol.messages.begun import child_job_id, end_key, is_end_key
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.plan.forms import FormField, FormSpec
from aetheris.protocol.plan.graph import JOB_CONTINUE, JOB_START, LOCAL_ACT, LOCAL_READ, Kind, Node, Retry
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.schema import DeclarationError, hints_of
from aetheris.sdk.tools import AnyTool, Tool
from aetheris.sdk.workflows.bodies import CallSettled
from aetheris.sdk.workflows.body_run import BodyRun
from aetheris.sdk.workflows.call_arguments import (
    Duration,
    UndoCall,
    as_json,
    checked_arguments,
    compensation,
    misuse_of,
    node_of,
    refuse_positional,
    seconds_of,
)
from aetheris.sdk.workflows.child_jobs import AnyStartable, ChildWorkflows, Startable
from aetheris.sdk.workflows.errors import ChildFailed, Misuse, ToolFailed
from aetheris.sdk.workflows.model_calls import ModelTool, model_tools
from aetheris.sdk.workflows.races import AsCompleted, TimeoutAt, first_of
from aetheris.sdk.workflows.result_references import CallsByReference, Handed

if TYPE_CHECKING:
    from aetheris.sdk.workflows.agents import WorkflowToolset

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class ToolCaller(CallsByReference):
    """How tools are called from here on; `using` makes one with other options."""

    run: BodyRun = field(repr=False)
    tools: Mapping[str, AnyTool | None]
    name: str | None = None
    undo_call: UndoCall | None = None
    timeout_s: float | None = None
    retry: Retry | None = None
    children: ChildWorkflows = field(default_factory=ChildWorkflows, repr=False)

    @overload
    async def call(
        self,
        tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, Result | Partial]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Any: ...
    @overload
    async def call(
        self, tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def call(
        self, tool: Tool[P, Coroutine[Any, Any, Result | Partial]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any: ...
    @overload
    async def call(self, tool: Tool[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(
        self, tool: Tool[Concatenate[ToolContext, P], Result | Partial], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any: ...
    @overload
    async def call(self, tool: Tool[Concatenate[ToolContext, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, tool: Tool[P, Result | Partial], /, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    @overload
    async def call(self, tool: Tool[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, tool: str, /, **kwargs: Any) -> Any: ...
    async def call(self, tool: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool; arguments go by name. What it returned, of the type that it is declared to return.

        An equal call is another call, as the code says it again; with an id of its own (`using`) it is the same one.

        Raises:
            ToolFailed: there is no effect of it, and there never will be.
            OutcomeUnknown: it may have taken effect.
            Misuse: the workflow doesn't name the tool, or its schema refuses the arguments.
        """
        refuse_positional(args)
        settled = await self._settled(tool, kwargs)
        return _returned(self.tools[tool] if isinstance(tool, str) else tool, settled.result)

    async def _called(self, tool: Any, given: Mapping[str, Any]) -> str:
        return (await self._settled(tool, given, by_reference=True)).node_id

    async def _settled(self, tool: Any, kwargs: Mapping[str, Any], *, by_reference: bool = False) -> CallSettled:
        called, handed = tool if isinstance(tool, str) else tool.name, Handed()
        given = checked_arguments(called, self._known(tool), kwargs, handed)
        number = 1
        if self.name is not None:
            node_id = self.run.named_id(self.name)
        else:
            node_id, number = self.run.content_id(called, given)
        undoing = self.undo_call
        node = node_of(
            id=node_id,
            tool=called,
            args=given,
            occurrence=number,
            retry=self.retry,
            timeout_s=self.timeout_s,
            compensate_with=None
            if undoing is None
            else compensation(node_id, undoing, self._known(undoing.tool), handed),
        )
        is_named = self.name is not None
        return await self.run.call(node, is_named=is_named, handed=handed.targets, by_reference=by_reference)

    @overload
    async def child(self, workflow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def child(self, workflow: str, /, **kwargs: Any) -> Any: ...
    async def child(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What another workflow returns, which runs as a job of its own; this one's end before it cancels it.

        Which job that is follows from the call, as which call is meant: one for each that the code makes, or that it
        names (`using`). Where the job continues as another, that one's result is meant.

        Raises:
            ChildFailed: it has not completed.
            ToolFailed: it was not to begin.
            Misuse: the workflow doesn't name it among what it starts, or it takes other arguments.
        """
        refuse_positional(args)
        _, known = self.children.known(workflow)
        node_id, job_id = await self._begin(workflow, kwargs, detached=False)
        while True:
            told = await self._told(job_id)
            following = told.get("continued_as")
            if following is None:
                break
            job_id = following
        if "error" in told:
            raise ChildFailed(node_id, told["error"], job_id=job_id, status=told["status"])
        adapter = None if known is None else _returns_if_known(known.body, known.name)
        return _as_declared(adapter, told.get("result"), job_id)

    @overload
    async def start(self, workflow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...
    @overload
    async def start(self, workflow: str, /, **kwargs: Any) -> str: ...
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> str:
        """Begin another workflow as a job that goes on by itself, whatever becomes of this one; its job_id.

        Raises:
            ToolFailed, OutcomeUnknown, Misuse: as `child`.
        """
        refuse_positional(args)
        return (await self._begin(workflow, kwargs, detached=True))[1]

    async def _begin(
        self, workflow: AnyStartable | str, given: Mapping[str, Any], *, detached: bool
    ) -> tuple[str, str]:
        """The node of the call, and the job."""
        name, known = self.children.known(workflow)
        wanted = as_json(name, given) if known is None else known.checked(given)
        args = {"workflow": name, "args": wanted, "detached": detached}
        number = 1
        if self.name is not None:
            node_id = self.run.named_id(self.name)
        else:
            node_id, number = self.run.content_id(JOB_START, args)
        undoing = self.undo_call
        undo = None if undoing is None else compensation(node_id, undoing, self._known(undoing.tool))
        node = node_of(id=node_id, tool=JOB_START, args=args, occurrence=number, compensate_with=undo)
        await self.run.call(node, is_named=self.name is not None)
        return node_id, child_job_id(self.run.start.job_id, node_id)

    async def _told(self, job_id: str) -> Mapping[str, Any]:
        """How a job has ended."""
        return (await self.run.call(self._signal_node(end_key(job_id)), is_named=True)).result

    def _signal_node(self, key: str, within: Duration | None = None) -> Node:
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        wait = {"key": key, "timeout_s": seconds_of(within)}
        return node_of(id=self.run.named_id(f"{Kind.WAIT.value}.{digest}"), kind=Kind.WAIT, wait=wait)

    def _known(self, tool: AnyTool | str) -> AnyTool | None:
        called = tool if isinstance(tool, str) else tool.name
        if called not in self.tools:
            raise Misuse(f"{called}: the workflow doesn't name it among its tools")
        return self.tools[called] if isinstance(tool, str) else tool


class WorkflowContext(ToolCaller):
    """A workflow's calls, times, waits and questions. Each is recorded; none is made twice."""

    __slots__ = ()

    @property
    def job_id(self) -> str:
        """The job that it runs in."""
        return self.run.start.job_id

    @property
    def node_id(self) -> str:
        """Its own node in that job's plan."""
        return self.run.start.node_id

    @overload
    async def continue_as(self, workflow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> NoReturn: ...
    @overload
    async def continue_as(self, workflow: str, /, **kwargs: Any) -> NoReturn: ...
    async def continue_as(self, workflow: Any, /, *args: Any, **kwargs: Any) -> NoReturn:
        """End this job here, and go on as another, which begins when this one has completed: of this workflow, or of
        one that it names among what it starts. Nothing of this one's calls burdens it.

        Raises:
            ToolFailed: it was not to.
            Misuse: as `child`.
        """
        refuse_positional(args)
        name, known = self.children.known(workflow, may_be_own=True)
        wanted = {"workflow": name, "args": as_json(name, kwargs) if known is None else known.checked(kwargs)}
        node_id, number = self.run.content_id(JOB_CONTINUE, wanted)
        node = node_of(id=node_id, tool=JOB_CONTINUE, args=wanted, occurrence=number)
        await self.run.call(node, is_named=False)
        raise self.run.continues(child_job_id(self.run.start.job_id, node_id))

    def using(
        self,
        *,
        id: str | None = None,  # noqa: A002  what it is called in a plan
        undo: UndoCall | None = None,
        timeout: Duration | None = None,
        retry: Retry | None = None,
    ) -> ToolCaller:
        """The same calls with options: `await ctx.using(id="ship").call(ship, order=order_id)`.

        Args:
            id: names the one call: whatever changes around it, there is one. Other arguments for it are refused.
            undo: the call that undoes it (see `undo`).
            timeout: shortens the tool's own.
            retry: how often it is tried again after a try that surely took no effect.
        """
        return ToolCaller(self.run, self.tools, id, undo, seconds_of(timeout), retry, self.children)

    @overload
    async def record(
        self, name: str, function: Callable[[*Ts], Coroutine[Any, Any, T]], /, *args: *Ts, reads_only: bool
    ) -> T: ...
    @overload
    async def record(self, name: str, function: Callable[[*Ts], T], /, *args: *Ts, reads_only: bool) -> T: ...
    async def record(self, name: str, function: Callable[..., Any], /, *args: Any, reads_only: bool) -> Any:
        """What a function of the workflow's own module returns, recorded: where the body runs again, it doesn't.

        It runs in the body's process, beside it: it may wait and do I/O, for five minutes, and holds no secret.

        Args:
            name: says which, in the record and to the policy.
            args: JSON.
            reads_only: it leaves nothing behind, so that it may run again where its end was not seen. Of any other
                a person says then whether it has happened.

        Raises:
            ToolFailed, OutcomeUnknown: as of a tool.
            Misuse: its arguments hold what JSON can't say.
        """
        tool = LOCAL_READ if reads_only else LOCAL_ACT
        given = as_json(name, {"name": name, "args": list(args)})
        node_id, number = self.run.content_id(tool, given)
        node = node_of(id=node_id, tool=tool, args=given, occurrence=number)
        settled = await self.run.call(node, is_named=False, local=partial(function, *args))
        return _as_declared(_returns_if_known(function, name), settled.result, name)

    def model_tools(self, patterns: Sequence[str]) -> list[ModelTool]:
        """Those of the workflow's tools that fit these names or patterns, for a model: an equal call is the same one.

        Raises:
            Misuse: a pattern that none fits, or a tool that can't be shown to a model.
        """
        return model_tools(self.run, self.tools, patterns)

    def toolset(self, patterns: Sequence[str]) -> "WorkflowToolset":
        """The same as a toolset for an agent on pydantic-ai, whose extra it takes.

        Raises:
            Misuse: as `model_tools`.
        """
        from aetheris.sdk.workflows.agents import WorkflowToolset  # noqa: PLC0415  an extra, which few have

        return WorkflowToolset(self.model_tools(patterns))

    async def sleep(self, duration: Duration) -> None:
        """Wait; the time goes on whatever dies. The same as asyncio.sleep of so many seconds."""
        await asyncio.sleep(seconds_of(duration) or 0.0)

    async def sleep_until(self, when: datetime) -> None:
        """Wait until a time of day; what it is must be known alike in each run, as by `now`.

        Raises:
            Misuse: it has no zone.
        """
        if when.tzinfo is None:
            raise Misuse("a time of day has its zone")
        wait = {"until": when.isoformat()}
        await self.run.call(node_of(id=self.run.own_id(Kind.TIMER, wait), kind=Kind.TIMER, wait=wait), is_named=False)

    def timeout_at(self, when: datetime) -> TimeoutAt:
        """As asyncio.timeout_at, of a time of day: `async with ctx.timeout_at(when): …` raises TimeoutError behind it.

        What was called in it goes on, and is settled; only nobody waits for it.

        Raises:
            Misuse: it has no zone.
        """
        if when.tzinfo is None:
            raise Misuse("a time of day has its zone")
        return TimeoutAt(partial(self.sleep_until, when))

    async def first(self, *wanted: Awaitable[T]) -> tuple[int, T]:
        """Wait for the first of several calls to end: which it is, from 0, and what it returned, or its exception.

        For the others nobody waits any more; what they have called goes on, and is settled.
        """
        return await first_of(*wanted)

    def as_completed(self, *wanted: Awaitable[T]) -> AsCompleted[T]:
        """Several calls at once, each when it has ended: `async for done in ctx.as_completed(…): done.result()`."""
        return AsCompleted(*wanted)

    async def now(self) -> datetime:
        """The time, recorded."""
        return datetime.fromisoformat((await self._effect(Kind.TIME))["now"])

    async def random(self) -> float:
        """A number in [0, 1), recorded."""
        return (await self._effect(Kind.RANDOM))["value"]

    async def uuid(self) -> UUID:
        """A random one, recorded."""
        return UUID(hex=(await self._effect(Kind.RANDOM))["hex"], version=4)

    async def llm(
        self,
        model: str,
        prompt: Any,
        *,
        system: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> str:
        """What a model answers, in words.

        Raises:
            ToolFailed, Misuse.
        """
        drawn = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        asked, handed = {"model": model, "prompt": prompt, "system": system, **drawn}, Handed()
        args = as_json("llm", {name: value for name, value in asked.items() if value is not None}, handed)
        node_id, number = self.run.content_id(Kind.LLM.value, args)
        node = node_of(id=node_id, kind=Kind.LLM, args=args, occurrence=number)
        return (await self.run.call(node, is_named=False, handed=handed.targets)).result["text"]

    async def signal(self, key: str, *, within: Duration | None = None) -> Any:
        """Wait for a signal to the job by its key; its payload. It is the same one, however often it is waited for.

        Raises:
            TimeoutError: none came in time.
            Misuse: the key is one of the system's own.
        """
        if is_end_key(key):
            raise Misuse(f"{key}: how a job ends is told to who has begun it, and by no signal")
        return await self._waited(self._signal_node(key, within), is_named=True)

    async def approval(
        self,
        title: str,
        *,
        fields: Sequence[FormField] = (),
        description: str = "",
        context: Mapping[str, Any] | None = None,
        approvers: Sequence[str] | None = None,
        within: Duration | None = None,
    ) -> dict[str, Any]:
        """Ask a person; the answers by field.

        Args:
            fields: the questions; without one, yes or no.
            context: what the person is shown beside them.
            approvers: who may answer; None: whoever may approve in the tenant.

        Raises:
            ToolFailed: the answer is no.
            TimeoutError: nobody has answered in time.
            Misuse: a form can't be asked like that.
        """
        try:
            form = FormSpec(
                title=title,
                description=description,
                fields=tuple(fields),
                approvers=None if approvers is None else tuple(approvers),
            )
        except ValidationError as refused:
            raise misuse_of("the form", refused) from None
        args = as_json("the form", context or {})
        seconds = seconds_of(within)
        asked = {"form": form.model_dump(mode="json", exclude_defaults=True), "args": args, "timeout_s": seconds}
        wait = {"timeout_s": seconds} if seconds is not None else None
        node_id = self.run.own_id(Kind.HUMAN, asked)
        return await self._waited(node_of(id=node_id, kind=Kind.HUMAN, args=args, form=form, wait=wait), is_named=False)

    async def _waited(self, node: Node, *, is_named: bool) -> Any:
        try:
            return (await self.run.call(node, is_named=is_named)).result
        except ToolFailed as ended:
            if ended.rejected_by == RejectReason.EXPIRED:
                raise TimeoutError(ended.reason) from None
            raise

    async def _effect(self, kind: Kind) -> Any:
        node_id, number = self.run.content_id(kind.value, {})
        return (await self.run.call(node_of(id=node_id, kind=kind, occurrence=number), is_named=False)).result


def _returned(tool: AnyTool | None, result: Any) -> Any:
    """What a tool returned, of the type that its function is declared to return, where that says one."""
    adapter = _returns(tool.function, tool.key) if tool is not None else None
    return _as_declared(adapter, result, tool.key if tool is not None else "")


def _as_declared(adapter: TypeAdapter[Any] | None, result: Any, name: str) -> Any:
    if adapter is None:
        return result
    try:
        return adapter.validate_python(result)
    except ValidationError as refused:
        raise misuse_of(f"{name}: its recorded result", refused) from None


@lru_cache(maxsize=1_000)
def _returns(function: Callable[..., Any], tool: str) -> TypeAdapter[Any] | None:
    """What makes of a recorded result what a tool's function returns; None where it says nothing of that."""
    kind = hints_of(function, tool).get("return", Any)
    if kind in (Any, None, Result, Partial) or {Result, Partial} & set(get_args(kind)):
        return None
    return TypeAdapter(kind)


def _returns_if_known(function: Callable[..., Any], name: str) -> TypeAdapter[Any] | None:
    try:
        return _returns(function, name)
    except (DeclarationError, PydanticUserError):
        return None  # its types can't be looked up, or are none that a record could be made of
