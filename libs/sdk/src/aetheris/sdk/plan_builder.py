"""Plans built in code: the tools' own signatures check the calls, and a step's result is an argument of another.

plan = PlanBuilder()
order = plan.call(look_up, order="o-1")
plan.using(id="pay", after=[...]).call(refund, order="o-1", amount=order.at("/paid"))
client.submit(plan.build())
"""

from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from pydantic import ValidationError

from aetheris.protocol.base.references import REF
from aetheris.protocol.plan.forms import FormField, FormSpec
from aetheris.protocol.plan.graph import InvalidPlan, Kind, Node, Retry, check_graph
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.tools import AnyTool, Tool
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
from aetheris.sdk.workflows.errors import Misuse
from aetheris.sdk.workflows.result_references import ResultPlace

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedStep(Generic[T]):
    """A step of a plan; `result` and `at` stand for what it will return, as arguments of steps behind it."""

    id: str

    @property
    def result(self) -> T:
        """All of it: of that type for who checks types, and a reference in the plan."""
        return cast("T", ResultPlace(self.id, ""))

    def at(self, pointer: str) -> Any:
        """A part of it, by its JSON Pointer."""
        return ResultPlace(self.id, pointer)


@dataclass(slots=True)
class _Nodes:
    nodes: list[Node] = field(default_factory=list[Node])
    ids: set[str] = field(default_factory=set[str])
    named: Counter[str] = field(default_factory=Counter[str])

    def add(self, node_id: str, **fields: Any) -> str:
        """Raises Misuse: it can be no step, or another has its id."""
        if node_id in self.ids:
            raise Misuse(f"{node_id}: another step of this plan has this id")
        self.nodes.append(node_of(id=node_id, **fields))
        self.ids.add(node_id)
        return node_id

    def free(self, name: str) -> str:
        """An id that no step has."""
        while True:
            self.named[name] += 1
            node_id = name if self.named[name] == 1 else f"{name}-{self.named[name]}"
            if node_id not in self.ids:
                return node_id


@dataclass(frozen=True, slots=True)
class StepCaller:
    """How steps call tools from here on; `using` makes one with other options."""

    nodes: _Nodes = field(repr=False, default_factory=_Nodes)
    name: str | None = None
    after: tuple[str, ...] = ()
    undo_call: UndoCall | None = None
    timeout_s: float | None = None
    retry: Retry | None = None
    occurrence: int = 1

    @overload
    def call(
        self,
        tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, Result | Partial]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> PlannedStep[Any]: ...
    @overload
    def call(
        self, tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> PlannedStep[T]: ...
    @overload
    def call(
        self, tool: Tool[P, Coroutine[Any, Any, Result | Partial]], /, *args: P.args, **kwargs: P.kwargs
    ) -> PlannedStep[Any]: ...
    @overload
    def call(self, tool: Tool[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> PlannedStep[T]: ...
    @overload
    def call(
        self, tool: Tool[Concatenate[ToolContext, P], Result | Partial], /, *args: P.args, **kwargs: P.kwargs
    ) -> PlannedStep[Any]: ...
    @overload
    def call(
        self, tool: Tool[Concatenate[ToolContext, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> PlannedStep[T]: ...
    @overload
    def call(self, tool: Tool[P, Result | Partial], /, *args: P.args, **kwargs: P.kwargs) -> PlannedStep[Any]: ...
    @overload
    def call(self, tool: Tool[P, T], /, *args: P.args, **kwargs: P.kwargs) -> PlannedStep[T]: ...
    @overload
    def call(self, tool: str, /, **kwargs: Any) -> PlannedStep[Any]: ...
    def call(self, tool: Any, /, *args: Any, **kwargs: Any) -> PlannedStep[Any]:
        """A step that calls a tool; arguments go by name. It comes behind the steps that its arguments refer to.

        Raises:
            Misuse: the tool's schema refuses the arguments; a step has that id.
        """
        refuse_positional(args)
        called, known = (tool, None) if isinstance(tool, str) else (tool.name, cast("AnyTool", tool))
        given = checked_arguments(called, known, kwargs, _reference)
        name = self.name or self.nodes.free(called)
        undoing = self.undo_call
        undone_by = undoing.tool if undoing is not None and not isinstance(undoing.tool, str) else None
        return PlannedStep(
            self.nodes.add(
                name,
                tool=called,
                args=given,
                depends_on=self.after,
                occurrence=self.occurrence,
                timeout_s=self.timeout_s,
                retry=self.retry,
                compensate_with=None if undoing is None else compensation(name, undoing, undone_by, _reference),
            )
        )


class PlanBuilder(StepCaller):
    """A plan, step by step (docs/plans.md)."""

    __slots__ = ()

    def using(
        self,
        *,
        id: str | None = None,  # noqa: A002  what it is called in a plan
        after: Sequence[PlannedStep[Any]] = (),
        undo: UndoCall | None = None,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        occurrence: int = 1,
    ) -> StepCaller:
        """The same calls with options: `plan.using(id="ship", after=[paid]).call(ship, order=order_id)`.

        Args:
            id: the step's; else it is the tool's name, with a number from the second on.
            after: steps that must be done before, beside those that its arguments refer to.
            undo: the call that undoes it (see `aetheris.sdk.workflows.undo`).
            timeout: shortens the tool's own.
            retry: how often it is tried again after a try that surely took no effect.
            occurrence: of an irreversible call that means the same as another of the plan.
        """
        needed = tuple(one.id for one in after)
        return StepCaller(self.nodes, id, needed, undo, seconds_of(timeout), retry, occurrence)

    def llm(
        self,
        model: str,
        prompt: Any,
        *,
        system: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> PlannedStep[Any]:
        """A step that asks a model; the words of its answer are at /text."""
        drawn = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        asked = {"model": model, "prompt": prompt, "system": system, **drawn}
        args = as_json("llm", {name: value for name, value in asked.items() if value is not None}, _reference)
        return self._add(Kind.LLM, args=args)

    def signal(
        self, key: str, *, within: Duration | None = None, after: Sequence[PlannedStep[Any]] = ()
    ) -> PlannedStep[Any]:
        """A step that waits for a signal; its payload."""
        return self._add(Kind.WAIT, after, wait={"key": key, "timeout_s": seconds_of(within)})

    def sleep(self, duration: Duration, *, after: Sequence[PlannedStep[Any]] = ()) -> PlannedStep[Any]:
        """A step that waits for so long."""
        return self._add(Kind.TIMER, after, wait={"for_s": seconds_of(duration)})

    def approval(
        self,
        title: str,
        *,
        fields: Sequence[FormField] = (),
        context: Mapping[str, Any] | None = None,
        approvers: Sequence[str] | None = None,
        within: Duration | None = None,
        after: Sequence[PlannedStep[Any]] = (),
    ) -> PlannedStep[Any]:
        """A step that asks a person; the answers by field.

        Raises:
            Misuse: a form can't be asked like that.
        """
        named = None if approvers is None else tuple(approvers)
        try:
            form = FormSpec(title=title, fields=tuple(fields), approvers=named)
        except ValidationError as refused:
            raise misuse_of("the form", refused) from None
        wait = None if within is None else {"timeout_s": seconds_of(within)}
        return self._add(Kind.HUMAN, after, args=as_json("the form", context or {}, _reference), form=form, wait=wait)

    def build(self) -> dict[str, Any]:
        """The plan as it is submitted.

        Raises:
            Misuse: it has no step, or could not be taken.
        """
        if not self.nodes.nodes:
            raise Misuse("a plan has a step")
        try:
            check_graph(self.nodes.nodes)
        except InvalidPlan as refused:
            raise Misuse(str(refused)) from None
        said = [one.model_dump(mode="json", exclude_defaults=True) for one in self.nodes.nodes]
        return {"nodes": [{"kind": one.kind.value} | says for one, says in zip(self.nodes.nodes, said, strict=True)]}

    def _add(self, kind: Kind, after: Sequence[PlannedStep[Any]] = (), **fields: Any) -> PlannedStep[Any]:
        name = self.nodes.free(kind.value)
        return PlannedStep(self.nodes.add(name, kind=kind, depends_on=tuple(one.id for one in after), **fields))


def _reference(value: Any) -> Any:
    if isinstance(value, ResultPlace):
        return {REF: value.target}
    raise TypeError
