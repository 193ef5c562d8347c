"""What a model answered, as it is recorded: calls, a whole plan, or words; and what of it is refused (docs/models.md).

A model's words are untrusted. It names tools and gives arguments, and nothing else: ids, classes, pins and approvals
are not its to say. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical, parse
from aetheris.protocol.base.references import HIDDEN, REF, SECRET, references
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, InvalidPlan, Name, Node, ToolName, check_graph
from aetheris.protocol.plan.prompts import call_id, step_id
from aetheris.protocol.planning.outcome import MAX_TEXT_CHARS, SHOWN_CHARS, text_of
from aetheris.protocol.planning.schemas import ArgsRefused, Schema, check_args, with_defaults

MAX_CALLS_IN_ANSWER = 64
MAX_ARGS_BYTES = 64 * 1024

PLAN_FUNCTION = "plan"
"""What a model calls to give its plan, where it is asked for a whole one."""

NOT_THE_MODELS = frozenset({REF, SECRET, HIDDEN})
"""What stands for something else in a plan's arguments, and is not a model's to write."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer as its provider gave it; arguments are text, or what a provider has parsed."""

    model: str
    text: str
    calls: Sequence[tuple[str, Any]]
    finish: str | None = None


class ModelToolCall(BaseModel):
    """A call that the model asked for; `refused` says why it is not made, and `said` what there was of arguments."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tool: str
    args: dict[str, Any] | None = None
    refused: str | None = None
    said: str | None = None


class Step(BaseModel):
    """A step of a whole plan, as a model gives it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Name
    tool: ToolName
    args: dict[str, Any] = Field(default_factory=dict)
    depends_on: tuple[Name, ...] = ()


class ModelAnswer(BaseModel):
    """An answer as it is recorded: the result of a node of kind llm."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    text: str = ""
    finish: str | None = None
    calls: tuple[ModelToolCall, ...] = ()
    steps: tuple[Step, ...] = ()
    refused: str | None = None
    """Why there is no plan in it, where one was asked for."""


class _Steps(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: tuple[Step, ...] = Field(min_length=1, max_length=1_000)


def plan_schema() -> dict[str, Any]:
    """The JSON Schema of the function `plan`."""
    return _Steps.model_json_schema()


def understood(reply: ModelReply, offered: Mapping[str, Schema], *, graph: bool = False) -> dict[str, Any]:
    """The answer as it is recorded, whatever the model said: an Answer as JSON.

    Args:
        offered: tool name → the pinned schema of its arguments.
        graph: a whole plan was asked for.
    """
    answer: dict[str, Any] = {"model": reply.model, "text": text_of(reply.text)}
    if reply.finish is not None:
        answer["finish"] = reply.finish
    if len(reply.text) > MAX_TEXT_CHARS:
        answer["cut"] = len(reply.text)
    if graph:
        return answer | _planned(reply, offered)
    calls = [_called(name, args, offered) for name, args in reply.calls[:MAX_CALLS_IN_ANSWER]]
    if len(reply.calls) > MAX_CALLS_IN_ANSWER:
        answer["left_out"] = len(reply.calls) - MAX_CALLS_IN_ANSWER
    return answer | ({"calls": calls} if calls else {})


@dataclass(frozen=True, slots=True)
class Spent:
    """What a job's answers have used so far; `cost_usd` is None where somebody's price is not known."""

    tokens: int = 0
    cost_usd: float | None = 0.0

    def plus(self, usage: Mapping[str, Any]) -> "Spent":
        """With one more answer."""
        cost = _number(usage.get("cost_usd"))
        total = None if self.cost_usd is None or cost is None else self.cost_usd + cost
        tokens = sum(int(_number(usage.get(name)) or 0) for name in ("input_tokens", "output_tokens"))
        return Spent(self.tokens + tokens, total)


NOTHING_SPENT = Spent()


def _called(name: str, given: Any, offered: Mapping[str, Schema]) -> dict[str, Any]:
    try:
        args = _arguments(given)
        if name not in offered:
            return _refused(name, given, "no such function")
        found = _not_the_models(args)
        if found is not None:
            return _refused(name, given, f"{found} is not yours to write")
        return {"tool": name, "args": _filled(offered[name], args)}
    except InvalidArgs as error:
        return _refused(name, given, f"arguments: {error}")
    except ArgsRefused as error:
        return _refused(name, given, f"arguments: {error}")


def _planned(reply: ModelReply, offered: Mapping[str, Schema]) -> dict[str, Any]:
    """The one plan in an answer, or why there is none."""
    if len(reply.calls) != 1 or reply.calls[0][0] != PLAN_FUNCTION:
        return {"refused": f"{PLAN_FUNCTION} must be called, once, and nothing else"}
    try:
        args = _arguments(reply.calls[0][1], MAX_PLAN_BYTES)
        steps = _Steps.model_validate(args).steps
        found = [_step(step, place, offered) for place, step in enumerate(steps)]
        check_graph([step_node(Step.model_validate(step)) for step in found])
    except InvalidArgs as error:
        return {"refused": str(error)}
    except InvalidPlan as error:
        return {"refused": str(error).replace("nodes[", "steps[", 1)}
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        return {"refused": f"{'/'.join(map(str, first['loc']))[:SHOWN_CHARS]}: {first['msg'][:SHOWN_CHARS]}"}
    return {"steps": found}


def _step(step: Step, place: int, offered: Mapping[str, Schema]) -> dict[str, Any]:
    at = f"steps[{place}]"
    if step.tool not in offered:
        raise InvalidPlan(f"{at}.tool", "no such tool")
    found = _not_the_models(step.args, NOT_THE_MODELS - {REF})
    if found is not None:
        raise InvalidPlan(f"{at}.args", f"{found} is not a model's to write")
    _check_references(step.args, at)
    try:
        args = _filled(offered[step.tool], step.args)
    except ArgsRefused as error:
        raise InvalidPlan(f"{at}.args{error.field}", error.rule) from None
    return step.model_dump(mode="json", exclude_defaults=True) | {"args": args}


def _check_references(args: Mapping[str, Any], at: str) -> None:
    """Whatever looks like a reference is one, whole."""
    whole = sum(1 for _ in references(dict(args)))
    if whole != sum(1 for _ in _keys(args, frozenset({REF}))):
        raise InvalidPlan(f"{at}.args", f'a reference is {{"{REF}": "STEP#/pointer"}} and nothing beside it')


def _arguments(given: Any, largest: int = MAX_ARGS_BYTES) -> dict[str, Any]:
    """Raises: InvalidArgs: no JSON object that has a canonical form, too large or too deep."""
    if isinstance(given, str | bytes) and len(given) > largest:
        raise InvalidArgs("", f"larger than {largest // 1024} KiB")
    args: Any = {} if given is None or given == "" else parse(given) if isinstance(given, str | bytes) else given
    if not isinstance(args, dict):
        raise InvalidArgs("", "must be a JSON object")
    found = cast("dict[str, Any]", args)
    if recordable.is_deep(found):
        raise InvalidArgs("", f"nested deeper than {recordable.MAX_DEPTH} levels")
    if len(canonical(found)) > largest:
        raise InvalidArgs("", f"larger than {largest // 1024} KiB")
    return found


def _filled(schema: Schema, args: Mapping[str, Any]) -> dict[str, Any]:
    filled = with_defaults(schema, args)
    check_args(schema, filled)
    return filled


def _refused(name: str, given: Any, why: str) -> dict[str, Any]:
    text = given if isinstance(given, str) else repr(given)
    return {"tool": text_of(name[:128]), "refused": why[:SHOWN_CHARS], "said": text_of(text[:SHOWN_CHARS])}


def _not_the_models(value: Any, names: frozenset[str] = NOT_THE_MODELS) -> str | None:
    return next(_keys(value, names), None)


def _keys(value: Any, names: frozenset[str]) -> Iterator[str]:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        yield from (name for name in held if name in names)
        for inner in held.values():
            yield from _keys(inner, names)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _keys(inner, names)


def step_node(step: Step) -> Node:
    """A step as a node; its id is its own among the model's, and what stands before it keeps it from being another's.

    Raises:
        InvalidPlan: it can be none.
    """
    needed = tuple(map(step_id, step.depends_on))
    return valid_node({"id": step_id(step.id), "tool": step.tool, "args": _renamed(step.args), "depends_on": needed})


def call_node(turn: int, place: int, call: ModelToolCall) -> Node:
    """A call of an answer as a node; `place` counts those that are right, from 1.

    Raises:
        InvalidPlan: it can be none.
    """
    args = call.args or {}
    found = _not_the_models(args)
    if found is not None:
        raise InvalidPlan(f"calls[{place - 1}].args", f"{found} is not a model's to write")
    return valid_node({"id": call_id(turn, place), "tool": call.tool, "args": args})


def valid_node(fields: Mapping[str, Any]) -> Node:
    """Raises: InvalidPlan: naming the field."""
    try:
        return Node.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InvalidPlan("/".join(map(str, first["loc"])), first["msg"]) from None


def _renamed(value: Any) -> Any:
    """Arguments whose references name the nodes that the steps become."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if len(held) == 1 and isinstance(held.get(REF), str):
            return {REF: step_id(held[REF])}
        return {name: _renamed(inner) for name, inner in held.items()}
    if isinstance(value, list):
        return [_renamed(inner) for inner in cast("list[Any]", value)]
    return value


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and isfinite(value) and value >= 0 else None
