"""What a model answered, and what follows from it: nodes, the end, or a refusal with its reason (docs/models.md).

A model's words are untrusted. It names tools and gives arguments, and nothing else: ids, classes, pins and approvals
are not its to say. Both functions are pure, so that a replay derives the same nodes from the same recorded answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical, parse
from aetheris.protocol.base.keys import content_key
from aetheris.protocol.base.references import HIDDEN, REF, SECRET, references
from aetheris.protocol.fold.state import JobState, Settled
from aetheris.protocol.plan.graph import (
    MAX_PLAN_BYTES,
    EffectClass,
    InvalidPlan,
    Kind,
    Name,
    Node,
    TaskGraph,
    ToolName,
    check_graph,
)
from aetheris.protocol.plan.prompts import Brief, asking, call_id, reported_turn, turn_id, whole
from aetheris.protocol.planning.schemas import ArgsRefused, Schema, check_args, graph_json, with_defaults
from aetheris.protocol.planning.turns import (
    MAX_TEXT_CHARS,
    SHOWN_CHARS,
    first_turn,
    last_turn,
    status_told,
    text_of,
    told_before,
    took_nothing,
    turn_of,
    turns_told,
)

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
class Following:
    """What follows from an answer: the nodes that it adds; none at the end. `failure` names why the job must end."""

    nodes: tuple[Node, ...] = ()
    failure: str | None = None
    summary: str | None = None
    """The model's words beside its calls."""


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


def following(job: JobState, brief: Brief, turn: int, result: Any, spent: Spent) -> Following:
    """What answer number `turn` adds to a job's plan; `spent` counts it in.

    The tools are those that the brief offers, with the pins of revision 0; everything else of a node is made here.
    """
    try:
        answer = ModelAnswer.model_validate(result)
    except ValidationError:
        return Following(failure="bad_answer: what was recorded is no answer of a model")
    summary = answer.text[:SHOWN_CHARS] or None
    over = _over(brief, spent)
    if over is not None:
        return Following(failure=over, summary=summary)
    try:
        nodes = _steps(answer) if brief.planning == "graph" else _calls(job, brief, turn, answer)
        _check(job, brief, nodes)
    except InvalidPlan as error:
        code = "no_plan" if brief.planning == "graph" else "bad_answer"
        return Following(failure=f"{code}: {error}", summary=summary)
    except _Over as error:
        return Following(failure=str(error), summary=summary)
    return Following(nodes, summary=summary)


def is_decided(job: JobState, brief: Brief, node_id: str) -> bool:
    """Whether what an answer adds is in the plan in force."""
    if brief.planning == "graph":
        return any(name.startswith(_step_id("")) for name in job.entries)
    return turn_id(turn_of(node_id) + 1) in job.entries


class _Over(Exception):
    """A limit of the job is reached."""


def _over(brief: Brief, spent: Spent) -> str | None:
    limits = brief.limits
    if spent.tokens > limits.tokens:
        return f"limit_tokens: {spent.tokens} of {limits.tokens} tokens are used"
    if limits.cost_usd is None:
        return None
    if spent.cost_usd is None:
        return f"limit_cost_usd: the price of {brief.model} is not known"
    if spent.cost_usd > limits.cost_usd:
        return f"limit_cost_usd: {spent.cost_usd:.6f} of {limits.cost_usd} USD are spent"
    return None


def _calls(job: JobState, brief: Brief, turn: int, answer: ModelAnswer) -> tuple[Node, ...]:
    """The calls that are to be made, side by side, and the next question; nothing where the answer is the end."""
    if not answer.calls:
        if not answer.text.strip():
            raise InvalidPlan("answer", "neither words nor calls")
        return ()
    made = [call for call in answer.calls if call.refused is None]
    nodes, results = _made(job, turn, made)
    if turn - first_turn(job) + 1 >= brief.limits.turns:
        raise _Over(f"limit_turns: {brief.limits.turns} turns are used, and the goal is not reached")
    turns = [*turns_told(job, turn), reported_turn(turn, results)]
    question = asking(job.created.goal or "", brief, job.tools, turn + 1, turns, earlier=told_before(job))
    return (*nodes, question)


def _made(job: JobState, turn: int, calls: Sequence[ModelToolCall]) -> tuple[list[Node], list[dict[str, Any]]]:
    """(the calls that are made now, the result of each that is asked for): an equal one that is done is not done again.

    Nor is one that the earlier job did, where this one continues another. What only reads is read anew; what surely
    took no effect is called again.
    """
    done = _done_before(job)
    done |= {_content(job, node.tool_name, node.args): node.id for node in _calls_of(job) if _stands(job, node)}
    nodes: list[Node] = []
    results: list[dict[str, Any]] = []
    for place, call in enumerate(calls, start=1):
        node = _valid(
            {
                "id": call_id(turn, place),
                "tool": call.tool,
                "args": _own(call.args or {}, place),
                "depends_on": [turn_id(turn)],
            }
        )
        content = _content(job, node.tool_name, node.args)
        if content not in done:
            nodes.append(node)
        results.append(whole(done.get(content, node.id)))
        if not _reads(job, node.tool_name):
            done.setdefault(content, node.id)
    return nodes, results


def _calls_of(job: JobState) -> Iterator[Node]:
    return (entries[-1].node for entries in job.entries.values() if entries[-1].node.kind is Kind.TOOL)


def _stands(job: JobState, node: Node) -> bool:
    """Whether a call has succeeded, and left something behind."""
    settled = job.settled_key(node.id)
    return settled is not None and settled[1].outcome is Settled.SUCCESS and not _reads(job, node.tool_name)


def _reads(job: JobState, tool: str) -> bool:
    pin = job.tools.get(tool)
    return pin is not None and pin.effect_class is EffectClass.PURE


def _content(job: JobState, tool: str, args: Mapping[str, Any]) -> str:
    pin = job.tools.get(tool)
    return content_key(job.created.tenant, tool, args, pin.volatile if pin is not None else ())


def _done_before(job: JobState) -> dict[str, str]:
    """What the job adopted, by what it means, and as references call it."""
    done = (call for call in told_before(job) if "result" in call and not _reads(job, call["tool"]))
    return {_content(job, call["tool"], call["args"]): _name_of(call["result"]) for call in done}


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The next question, in which what failed is told; `turns` had such a call, and `node_id` is the last of them."""

    question: Node
    turns: int
    node_id: Name


def failure_report(job: JobState, brief: Brief) -> FailureReport | None:
    """The question to ask once every call of a turn has ended, and some surely without an effect; None where not so.

    It follows from the fold alone: the newest question refers to results that will never be there.
    """
    turn = last_turn(job)
    *before, last = turns_told(job, turn) or ({},)
    asked_of = [(result, _node_of(result, job)) for result in last.get("results", ())]
    states = [job.settled_key(node_id) if node_id is not None else None for _, node_id in asked_of]
    failed = [node_id for _, node_id in asked_of if node_id is not None and took_nothing(job, node_id)]
    if not failed or any(state is None for (_, node_id), state in zip(asked_of, states, strict=True) if node_id):
        return None
    results = [
        status_told(job, node_id) if node_id is not None and node_id in failed else result
        for result, node_id in asked_of
    ]
    turns = [*before, reported_turn(turn - 1, results)]
    question = asking(job.created.goal or "", brief, job.tools, turn, turns, earlier=told_before(job))
    return FailureReport(question, sum(map(_has_failed, turns)), failed[-1])


def _node_of(result: Any, job: JobState) -> Name | None:
    """The node of the job whose result stands here; None for what was told of a failure, or is adopted."""
    name = _name_of(result)
    return name if name in job.entries else None


def _name_of(result: Any) -> str:
    """What the reference that stands for a result calls its step; "" for what was told of a failure."""
    return str(result[REF]).partition("#")[0] if isinstance(result, dict) and REF in result else ""


def _has_failed(turn: Mapping[str, Any]) -> bool:
    return not all(map(_name_of, turn.get("results", ())))


def _steps(answer: ModelAnswer) -> tuple[Node, ...]:
    if answer.refused is not None:
        raise InvalidPlan("answer", answer.refused)
    if not answer.steps:
        raise InvalidPlan("answer", "there is no plan in it")
    return tuple(_node(step, turn_id(1)) for step in answer.steps)


def _node(step: Step, *before: Name) -> Node:
    """Its id is its own among the model's; what stands before it keeps it from being any other node's."""
    needed = [*before, *(_step_id(name) for name in step.depends_on)]
    return _valid({"id": _step_id(step.id), "tool": step.tool, "args": _renamed(step.args), "depends_on": needed})


def _valid(fields: Mapping[str, Any]) -> Node:
    try:
        return Node.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InvalidPlan("/".join(map(str, first["loc"])), first["msg"]) from None


def _step_id(name: str) -> str:
    return f"{PLAN_FUNCTION}.{name}"


def _renamed(value: Any) -> Any:
    """Arguments whose references name the nodes that the steps become."""
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if len(held) == 1 and isinstance(held.get(REF), str):
            return {REF: _step_id(held[REF])}
        return {name: _renamed(inner) for name, inner in held.items()}
    if isinstance(value, list):
        return [_renamed(inner) for inner in cast("list[Any]", value)]
    return value


def _own(args: dict[str, Any], place: int) -> dict[str, Any]:
    found = _not_the_models(args)
    if found is not None:
        raise InvalidPlan(f"calls[{place - 1}].args", f"{found} is not a model's to write")
    return args


def _check(job: JobState, brief: Brief, added: Sequence[Node]) -> None:
    """What the fold will ask of a revision, and the limits; nothing that is written may be void."""
    if not added:
        return
    tools = [node.tool for node in added if node.kind is Kind.TOOL]
    before = sum(1 for entries in job.entries.values() if entries[-1].node.kind is Kind.TOOL)
    if before + len(tools) > brief.limits.calls:
        raise _Over(f"limit_calls: {before} of {brief.limits.calls} calls are made, {len(tools)} more are asked for")
    for node in added:
        if node.id in job.entries:
            raise InvalidPlan("id", f"{node.id} is in the plan already")
        if node.tool is not None and (node.tool not in brief.tools or node.tool not in job.tools):
            raise InvalidPlan("tool", f"{node.tool[:SHOWN_CHARS]} is not offered")
    check_graph([*(entries[-1].node for entries in job.entries.values()), *added], job.created.adopted)
    try:
        size = len(canonical(graph_json(TaskGraph(nodes=tuple(added)))))
    except InvalidArgs as error:
        raise InvalidPlan(f"nodes{error.field}", error.rule) from None
    if size > MAX_PLAN_BYTES:
        raise InvalidPlan("nodes", f"larger than {MAX_PLAN_BYTES // 1024} KiB")


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
        check_graph([_node(Step.model_validate(step)) for step in found])
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


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and isfinite(value) and value >= 0 else None
