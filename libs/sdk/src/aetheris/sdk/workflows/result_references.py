"""Results that are handed on unread: what stands for them in the arguments of other calls (docs/workflows.md)."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from aetheris.protocol.base.references import REF
from aetheris.sdk.context import ToolContext
from aetheris.sdk.outcomes import Partial, Result
from aetheris.sdk.tools import Tool
from aetheris.sdk.workflows.call_arguments import refuse_positional

P = ParamSpec("P")
T = TypeVar("T")


class ResultPlace:
    """A place in what a call has returned, or a step of a plan will return, in the arguments of another."""

    __slots__ = ("node_id", "pointer")

    def __init__(self, node_id: str, pointer: str) -> None:
        self.node_id = node_id
        self.pointer = pointer

    @property
    def target(self) -> str:
        """As references say it: NODE#/pointer."""
        return f"{self.node_id}#{self.pointer}"


@dataclass(frozen=True, slots=True)
class ResultReference(Generic[T]):
    """What a call has returned, unread; `result` and `at` stand for it in the arguments of later calls."""

    node_id: str

    @property
    def result(self) -> T:
        """All of it: of that type for who checks types, and a reference in the record."""
        return cast("T", ResultPlace(self.node_id, ""))

    def at(self, pointer: str) -> Any:
        """A part of it, by its JSON Pointer; where there is no such part, the call with it is refused."""
        return ResultPlace(self.node_id, pointer)


@dataclass(slots=True)
class Handed:
    """Writes references in arguments, and knows which: nothing else among these stands for a result."""

    targets: set[str] = field(default_factory=set[str])

    def __call__(self, value: Any) -> Any:
        """What stands for a value that JSON can't say; raises TypeError: nothing does."""
        if not isinstance(value, ResultPlace):
            raise TypeError
        self.targets.add(value.target)
        return {REF: value.target}


class CallsByReference:
    """Whoever makes calls whose results it does not read."""

    __slots__ = ()

    @overload
    async def reference(
        self,
        tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, Result | Partial]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ResultReference[Any]: ...
    @overload
    async def reference(
        self, tool: Tool[Concatenate[ToolContext, P], Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[T]: ...
    @overload
    async def reference(
        self, tool: Tool[P, Coroutine[Any, Any, Result | Partial]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[Any]: ...
    @overload
    async def reference(
        self, tool: Tool[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[T]: ...
    @overload
    async def reference(
        self, tool: Tool[Concatenate[ToolContext, P], Result | Partial], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[Any]: ...
    @overload
    async def reference(
        self, tool: Tool[Concatenate[ToolContext, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[T]: ...
    @overload
    async def reference(
        self, tool: Tool[P, Result | Partial], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultReference[Any]: ...
    @overload
    async def reference(self, tool: Tool[P, T], /, *args: P.args, **kwargs: P.kwargs) -> ResultReference[T]: ...
    @overload
    async def reference(self, tool: str, /, **kwargs: Any) -> ResultReference[Any]: ...
    async def reference(self, tool: Any, /, *args: Any, **kwargs: Any) -> ResultReference[Any]:
        """Call a tool, and hand on what it returned without reading it; arguments go by name.

        The result stays where it was recorded, however large it is: neither this code nor what is recorded of the calls
        that are given it has its bytes.

        Raises:
            ToolFailed, OutcomeUnknown, Misuse: as `call`.
        """
        refuse_positional(args)
        return ResultReference(await self._called(tool, kwargs))

    async def _called(self, tool: Any, given: Mapping[str, Any]) -> str:
        """Make the call, unread; its node."""
        raise NotImplementedError
