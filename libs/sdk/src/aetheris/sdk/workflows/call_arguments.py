"""Arguments of calls as plans hold them, checked by the tool's schema: of workflows' calls, of plans built in code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, overload

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from aetheris.protocol.base.references import REF
from aetheris.protocol.plan.graph import Compensation, Node
from aetheris.protocol.planning.schemas import ArgsRefused, check_args, with_defaults
from aetheris.sdk.context import ToolContext
from aetheris.sdk.tools import AnyTool, Tool
from aetheris.sdk.workflows.errors import Misuse

P = ParamSpec("P")
Duration = timedelta | float
"""A float: seconds."""


class Own:
    """A place in the result of the call that is undone."""

    __slots__ = ("pointer",)

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer


def own(pointer: str = "") -> Any:
    """In the arguments of `undo`: what the call that is undone returned, at a JSON Pointer."""
    return Own(pointer)


@dataclass(frozen=True, slots=True)
class UndoCall:
    """The call that undoes another; made by `undo`."""

    tool: AnyTool | str
    args: Mapping[str, Any]


@overload
def undo(tool: Tool[Concatenate[ToolContext, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> UndoCall: ...
@overload
def undo(tool: Tool[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> UndoCall: ...
@overload
def undo(tool: str, /, **kwargs: Any) -> UndoCall: ...
def undo(tool: Any, /, *args: Any, **kwargs: Any) -> UndoCall:
    """The call that undoes one, when its job fails behind it or is cancelled; `own` stands for what that one returned.

    Raises:
        Misuse: its arguments are not given by name.
    """
    refuse_positional(args)
    return UndoCall(tool, kwargs)


StandsFor = Callable[[Any], Any]
"""What stands in a plan for a value that JSON can't say; raises TypeError where nothing does."""


def _nothing(_value: Any) -> Any:
    raise TypeError


def node_of(**fields: Any) -> Node:
    """A node of a plan. Raises Misuse: it could stand in none."""
    try:
        return Node.model_validate(fields)
    except ValidationError as refused:
        raise misuse_of(f"{fields['id']}", refused) from None


def checked_arguments(
    called: str, known: AnyTool | None, given: Mapping[str, Any], stands_for: StandsFor = _nothing
) -> dict[str, Any]:
    """The arguments of a tool's call as they are planned; `known`: the tool itself, where it is at hand.

    Raises:
        Misuse: its schema refuses them, or they hold what JSON can't say.
    """
    args = as_json(called, given, stands_for)
    if known is None:
        return args
    args = with_defaults(known.schema, args)
    try:
        check_args(known.schema, args)
    except ArgsRefused as refused:
        raise Misuse(f"{called}: {refused}") from None
    return args


def as_json(called: str, given: Mapping[str, Any], stands_for: StandsFor = _nothing) -> dict[str, Any]:
    """Arguments as JSON.

    Raises:
        Misuse: they hold what JSON can't say.
    """
    try:
        return to_jsonable_python(dict(given), fallback=stands_for)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError):
        raise Misuse(f"{called}: its arguments hold what JSON can't say") from None


def compensation(
    node_id: str, undo_call: UndoCall, known: AnyTool | None, stands_for: StandsFor = _nothing
) -> Compensation:
    """The call that undoes a node, as it is planned.

    Raises:
        Misuse.
    """

    def own_result(value: Any) -> Any:
        return {REF: f"{node_id}#{value.pointer}"} if isinstance(value, Own) else stands_for(value)

    called = undo_call.tool if isinstance(undo_call.tool, str) else undo_call.tool.name
    return Compensation(tool=called, args=checked_arguments(called, known, undo_call.args, own_result))


def misuse_of(what: str, refused: ValidationError) -> Misuse:
    """What is wrong, by its place; never a value."""
    first = refused.errors(include_input=False, include_url=False, include_context=False)[0]
    return Misuse(f"{what}: /{'/'.join(map(str, first['loc']))}: {first['type']}")


def seconds_of(duration: Duration | None) -> float | None:
    """So many."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def refuse_positional(args: tuple[Any, ...]) -> None:
    """Raises Misuse: there are any."""
    if args:
        raise Misuse("a tool's arguments are given by name")
