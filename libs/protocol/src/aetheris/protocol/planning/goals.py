"""Goals: the built-in workflow whose body asks a model, and makes the calls that it answers (docs/models.md). Pure.

Such a job has one node. From the same answers and the same ends of calls, in the order of the log, follow the same
calls: whoever takes over asks the same questions under the same ids, and is told what is recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.protocol.base.canonical import InvalidArgs, canonical, digest
from aetheris.protocol.base.references import REF
from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages.registry_lines import RegistryEntry
from aetheris.protocol.plan.graph import (
    MAX_PLAN_BYTES,
    EffectClass,
    InvalidPlan,
    Kind,
    Name,
    Node,
    TaskGraph,
    ToolName,
    ToolPin,
    check_graph,
    dependencies,
)
from aetheris.protocol.plan.prompts import GOAL_NODE, Brief, asking, reported_turn, step_id, turn_id, turn_of, whole
from aetheris.protocol.planning.answers import (
    NOTHING_SPENT,
    ModelAnswer,
    Spent,
    call_node,
    step_node,
)
from aetheris.protocol.planning.outcome import SHOWN_CHARS, HasEffect, ended_status, error_told

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "brief": {"type": "object"},
        "first": {"type": "integer", "minimum": 1},
        "earlier": {"type": "array"},
    },
    "required": ["goal", "brief"],
    "additionalProperties": False,
}
GOAL_ENTRY = RegistryEntry(
    name="goal",
    version="1",
    schema=_SCHEMA,
    schema_hash=digest(_SCHEMA),
    effect_class=EffectClass.PURE,
    kind="workflow",
    code_hash=digest("goal@1"),
)
"""What each executor can run. It is in no registry: it is planned for goals alone, with the tools that they name."""

NO_NODES: Mapping[str, Any] = {"nodes": list[object]()}
"""The task graph of a decision that asks for nothing."""


class GoalArgs(BaseModel):
    """The arguments of a goal's node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal: str
    brief: Brief
    first: int = Field(default=1, ge=1)
    """The number of its first question: a job that continues another counts on."""
    earlier: tuple[dict[str, Any], ...] = ()
    """The calls of the job that it continues, as prompts.Earlier; their results are referred to."""


def goal_graph(
    goal: str,
    brief: Brief,
    pins: Mapping[str, ToolPin],
    own: ToolPin,
    *,
    first: int = 1,
    earlier: Sequence[Mapping[str, Any]] = (),
) -> TaskGraph:
    """The plan of a goal's job: its one node, and the tools of the brief, pinned; `own`: the pin of `GOAL_ENTRY`.

    Raises:
        KeyError: a tool of the brief is not pinned.
    """
    args: dict[str, Any] = {"goal": goal, "brief": brief.model_dump(mode="json", exclude_none=True)}
    if first > 1:
        args["first"] = first
    if earlier:
        args["earlier"] = list(earlier)
    tools = {name: pins[name] for name in brief.tools}
    node = Node(id=GOAL_NODE, kind=Kind.WORKFLOW, tool=GOAL_ENTRY.name, args=args)
    return TaskGraph(tools={**tools, GOAL_ENTRY.name: own}, nodes=(node,))


@dataclass(frozen=True, slots=True)
class AnswerDecision:
    """What an answer asks for, as it is recorded beside it: the calls that are right, and the model's words."""

    task_graph: Mapping[str, Any] = field(default_factory=lambda: NO_NODES)
    summary: str | None = None


def decision_of(brief: Brief, node_id: Name, result: Any) -> AnswerDecision:
    """What the answer to a question comes to by itself; of what is no answer, nothing.

    A call that an earlier one stands for is among them, and is not made.
    """
    turn = turn_of(node_id)
    try:
        answer = ModelAnswer.model_validate(result)
        nodes = _wanted(brief, turn or 1, answer)
    except (ValidationError, InvalidPlan):
        return AnswerDecision()
    graph = {"nodes": [node.model_dump(mode="json", exclude_defaults=True) for node in nodes]}
    return AnswerDecision(graph, answer.text[:SHOWN_CHARS] or None)


def steps_of(result: Any) -> tuple[Node, ...]:
    """The steps of the whole plan in a recorded answer, as nodes; () where there is none."""
    try:
        return tuple(map(step_node, ModelAnswer.model_validate(result).steps))
    except (ValidationError, InvalidPlan):
        return ()


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """How a call of the body has ended, as the log says; `sure`: of what is no success, that it took no effect."""

    node_id: str
    outcome: Settled
    sure: bool = True
    partial: bool = False
    result: Any = None
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str | None = None
    detail: str | None = None
    duplicate_of: Mapping[str, Any] | None = None
    execution_id: str | None = None


@dataclass(frozen=True, slots=True)
class GoalCall:
    """A call that the body makes; `reads`: it is told what came of it, and does not only hand that on."""

    node: Node
    reads: bool = False


@dataclass(frozen=True, slots=True)
class GoalEnd:
    """How a goal has ended: with the model's last answer, or what its plan returned; or an error."""

    result: Any = None
    error: str | None = None


class _Over(Exception):
    """The goal ends here, and why."""


@dataclass(slots=True)
class GoalBody:
    """The body of one goal, as it follows from what it was told so far."""

    args: GoalArgs
    pins: Mapping[str, ToolPin]
    end: GoalEnd | None = None
    turn: int = 0
    """The number of the newest question."""
    spent: Spent = NOTHING_SPENT
    _made: dict[str, Node] = field(default_factory=dict[str, Node])
    """The calls of tools."""
    _open: dict[str, None] = field(default_factory=dict[str, None])
    _ended: dict[str, AnsweredCall] = field(default_factory=dict[str, AnsweredCall])
    _turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the questions tell of the turns before."""
    _stand_for: list[str] = field(default_factory=list[str])
    """The calls, or adopted steps, whose results stand for those that the newest answer asks for."""
    _steps: tuple[Node, ...] = ()
    """Of a whole plan, those that are not made yet."""
    _sinks: frozenset[str] = frozenset()
    """Of a whole plan, those that nothing follows: their results are its own."""

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The calls that it waits for."""
        return tuple(self._open)

    def begin(self) -> list[GoalCall]:
        """The first question."""
        self.turn = self.args.first
        return [self._question()]

    def told(self, end: AnsweredCall) -> list[GoalCall]:
        """A call of its own has ended: what it makes upon that."""
        if self.end is not None or end.node_id not in self._open:
            return []
        del self._open[end.node_id]
        self._ended[end.node_id] = end
        try:
            return self._answered(end) if end.node_id == turn_id(self.turn) else self._called(end)
        except _Over as over:
            self.end = GoalEnd(error=str(over))
        return []

    @property
    def _brief(self) -> Brief:
        return self.args.brief

    def _question(self) -> GoalCall:
        node = asking(self.args.goal, self._brief, self.pins, self.turn, self._turns, earlier=self.args.earlier)
        try:
            size = len(canonical(node.args))
        except InvalidArgs as error:
            raise _Over(f"bad_answer: nodes{error.field}: {error.rule}") from None
        if size > MAX_PLAN_BYTES:
            raise _Over(f"bad_answer: nodes: larger than {MAX_PLAN_BYTES // 1024} KiB")
        self._open[node.id] = None
        return GoalCall(node, reads=True)

    def _answered(self, end: AnsweredCall) -> list[GoalCall]:
        if end.outcome is not Settled.SUCCESS:
            raise _Over(end.reason or "failed")
        try:
            answer = ModelAnswer.model_validate(end.result)
        except ValidationError:
            raise _Over("bad_answer: what was recorded is no answer of a model") from None
        self.spent = self.spent.plus(end.usage)
        _check_spent(self._brief, self.spent)
        try:
            nodes = _wanted(self._brief, self.turn, answer)
        except InvalidPlan as error:
            raise _Over(f"{'no_plan' if self._brief.planning == 'graph' else 'bad_answer'}: {error}") from None
        if self._brief.planning == "graph":
            return self._begin_plan(nodes)
        if not answer.calls:
            self.end = GoalEnd(end.result)
            return []
        return self._begin_turn(nodes)

    def _begin_turn(self, nodes: Sequence[Node]) -> list[GoalCall]:
        """The calls that are made, side by side: an equal one that is done is not done again.

        Nor is one that the earlier job did, where this one continues another. What only reads is read anew; what
        surely took no effect is called again.
        """
        done = self._done()
        made: list[Node] = []
        self._stand_for = []
        for node in nodes:
            content = self._content(node.tool_name, node.args)
            if content not in done:
                made.append(node)
            self._stand_for.append(done.get(content, node.id))
            if not self._reads(node.tool_name):
                done.setdefault(content, node.id)
        if self.turn - self.args.first + 1 >= self._brief.limits.turns:
            raise _Over(f"limit_turns: {self._brief.limits.turns} turns are used, and the goal is not reached")
        self._check(made)
        return self._make(made) if made else self._next_turn()

    def _begin_plan(self, nodes: Sequence[Node]) -> list[GoalCall]:
        self._check(nodes)
        needed = {name for node in nodes for name in dependencies(node)}
        self._sinks = frozenset(node.id for node in nodes if node.id not in needed)
        self._steps = tuple(nodes)
        return self._next_steps()

    def _called(self, end: AnsweredCall) -> list[GoalCall]:
        """What surely took no effect the model is told of, turn by turn; all else that is no whole success ends it."""
        node = self._made[end.node_id]
        failed = end.outcome is not Settled.SUCCESS
        if end.partial and not self._reads(node.tool_name):
            raise _Over(f"{end.node_id} took effect in part")
        if failed and not (end.sure or self._reads(node.tool_name)):
            raise _Over(f"{end.node_id} failed, not sure: {end.reason or 'failed'}")
        if self._brief.planning == "graph":
            if failed:
                raise _Over(f"{end.node_id}: {end.reason or 'failed'}")
            return self._next_steps()
        return [] if self._open else self._next_turn()

    def _next_turn(self) -> list[GoalCall]:
        results = [self._told(name) for name in self._stand_for]
        self._turns.append(reported_turn(self.turn, results))
        failed = [name for name in self._stand_for if self._has_failed(name)]
        turns = sum(not all(map(_is_reference, one.get("results", ()))) for one in self._turns)
        if failed and turns > self._brief.limits.failed_turns:
            why = self._ended[failed[-1]].reason or "failed"
            limit = f"limit_failed_turns: {self._brief.limits.failed_turns} turns with a failed call are allowed"
            raise _Over(f"{limit}; {failed[-1]}: {why}")
        self.turn += 1
        return [self._question()]

    def _next_steps(self) -> list[GoalCall]:
        """The steps that need nothing any more; where none is left, the end."""
        done = {name for name, end in self._ended.items() if end.outcome is Settled.SUCCESS}
        ready = [node for node in self._steps if done.issuperset(dependencies(node))]
        self._steps = tuple(node for node in self._steps if node not in ready)
        if not (ready or self._open):
            last = len(step_id(""))
            self.end = GoalEnd({name[last:]: self._ended[name].result for name in self._made if name in self._sinks})
        return self._make([node.model_copy(update={"depends_on": ()}) for node in ready])

    def _make(self, nodes: Iterable[Node]) -> list[GoalCall]:
        made = {node.id: node for node in nodes}
        self._made |= made
        self._open |= dict.fromkeys(made)
        return [GoalCall(node, reads=node.id in self._sinks) for node in made.values()]

    def _told(self, name: str) -> dict[str, Any]:
        return _status(self._ended[name]) if self._has_failed(name) else whole(name)

    def _has_failed(self, name: str) -> bool:
        return name in self._ended and self._ended[name].outcome is not Settled.SUCCESS

    def _done(self) -> dict[str, str]:
        """What was done and stands, by what it means, and as references call it."""
        told = (one for one in self.args.earlier if "result" in one and not self._reads(one["tool"]))
        found = {self._content(one["tool"], one["args"]): _name_of(one["result"]) for one in told}
        for node in self._made.values():
            if not self._reads(node.tool_name) and not self._has_failed(node.id):
                found[self._content(node.tool_name, node.args)] = node.id
        return found

    def _reads(self, tool: ToolName) -> bool:
        pin = self.pins.get(tool)
        return pin is not None and pin.effect_class is EffectClass.PURE

    def _content(self, tool: ToolName, args: Mapping[str, Any]) -> str:
        """What a call means: without volatile arguments."""
        pin = self.pins.get(tool)
        volatile = pin.volatile if pin is not None else ()
        return digest([tool, {name: value for name, value in args.items() if name not in volatile}])

    def _check(self, nodes: Sequence[Node]) -> None:
        """The limit of calls; and that nothing is asked for which was not offered."""
        limit, before = self._brief.limits.calls, len(self._made)
        if before + len(nodes) > limit:
            raise _Over(f"limit_calls: {before} of {limit} calls are made, {len(nodes)} more are asked for")
        for node in nodes:
            if node.tool not in self._brief.tools or node.tool not in self.pins:
                code = "no_plan" if self._brief.planning == "graph" else "bad_answer"
                raise _Over(f"{code}: tool: {node.tool_name[:SHOWN_CHARS]} is not offered")


def _wanted(brief: Brief, turn: int, answer: ModelAnswer) -> tuple[Node, ...]:
    """The calls that an answer asks for, or the steps of its plan, but for what is refused in it.

    Raises:
        InvalidPlan: there is no plan where one was asked for; neither words nor calls; or no node.
    """
    if brief.planning == "graph":
        if answer.refused is not None:
            raise InvalidPlan("answer", answer.refused)
        if not answer.steps:
            raise InvalidPlan("answer", "there is no plan in it")
        steps = tuple(map(step_node, answer.steps))
        check_graph(steps)
        return steps
    if not answer.calls and not answer.text.strip():
        raise InvalidPlan("answer", "neither words nor calls")
    right = (call for call in answer.calls if call.refused is None)
    nodes = tuple(call_node(turn, place, call) for place, call in enumerate(right, start=1))
    check_graph(nodes)
    return nodes


def _check_spent(brief: Brief, spent: Spent) -> None:
    limits = brief.limits
    if spent.tokens > limits.tokens:
        raise _Over(f"limit_tokens: {spent.tokens} of {limits.tokens} tokens are used")
    if limits.cost_usd is None:
        return
    if spent.cost_usd is None:
        raise _Over(f"limit_cost_usd: the price of {brief.model} is not known")
    if spent.cost_usd > limits.cost_usd:
        raise _Over(f"limit_cost_usd: {spent.cost_usd:.6f} of {limits.cost_usd} USD are spent")


def _status(end: AnsweredCall) -> dict[str, Any]:
    """What the model is told of a call that has no result: it needn't guess from words."""
    known: dict[str, Any] = {"outcome": ended_status(end.outcome, end.reason).value, "has_effect": HasEffect.NONE.value}
    if end.duplicate_of is not None:
        known["duplicate_of"] = dict(end.duplicate_of)
    known["error_message"] = error_told(end.reason, end.detail)
    return known | ({} if end.execution_id is None else {"execution_id": end.execution_id})


def _name_of(result: Any) -> str:
    """What the reference that stands for a result calls its step."""
    return str(result[REF]).partition("#")[0] if _is_reference(result) else ""


def _is_reference(result: Any) -> bool:
    return isinstance(result, dict) and REF in result
