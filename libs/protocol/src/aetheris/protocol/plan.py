"""Plans: a task graph of nodes, the tools it pins, and what makes one valid (docs/plans.md)."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from aetheris.protocol.references import references

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]

OnInDoubt = Literal["park", "fail"]
"""What becomes of a call that stays in doubt: it waits for a human, or it has failed and nobody knows."""

MAX_PLAN_BYTES = 400 * 1024
"""A plan lies twice in the group that a job is born with, which must fit one record batch."""
MAX_NODES = 10_000


class Kind(StrEnum):
    """What a node does."""

    TOOL = "tool"
    LLM = "llm"
    HUMAN = "human"
    WAIT = "wait"
    TIMER = "timer"
    TIME = "time"
    RANDOM = "random"


RUNNABLE = frozenset({Kind.TOOL, Kind.TIME, Kind.RANDOM})
"""The kinds that this version can run; a plan with another is refused at submission."""


class EffectClass(StrEnum):
    """What is known of a call whose end nobody saw (docs/guarantees.md, "In doubt")."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    PROBEABLE = "probeable"
    OPAQUE = "opaque"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Retry(_Strict):
    """When to try again after a recorded proof that a try took no effect."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    backoff_s: float = Field(default=0.5, ge=0, le=86_400)
    backoff_factor: float = Field(default=2.0, ge=1, le=10)
    max_backoff_s: float = Field(default=60.0, ge=0, le=86_400)


class ToolPin(BaseModel):
    """The registry entry that a plan was made with; the planner may raise `irreversible`, never lower it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: str
    schema_hash: str
    effect_class: EffectClass
    irreversible: bool = False
    volatile: tuple[str, ...] = ()
    timeout_s: float = 30.0
    settles_within_s: float = 0.0
    on_in_doubt: OnInDoubt | None = None


class JobOptions(BaseModel):
    """What a submission asks for the whole job; it goes before what its tools declare."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    on_in_doubt: OnInDoubt | None = None


class Node(_Strict):
    """One step of a plan."""

    id: Name
    kind: Kind = Kind.TOOL
    tool: ToolName | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    depends_on: tuple[Name, ...] = ()
    retry: Retry | None = None
    compensate_with: dict[str, Any] | None = None
    occurrence: int = Field(default=1, ge=1)
    irreversible: bool = False
    wait: dict[str, Any] | None = None

    @property
    def tool_name(self) -> str:
        """The name that enters the idempotency key; kinds without a tool are their own."""
        return self.tool if self.tool is not None else self.kind.value


class TaskGraph(_Strict):
    """What a job is to do: nodes in declared order; there are no edges beside `depends_on`."""

    tools: dict[ToolName, ToolPin] = Field(default_factory=dict)
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=MAX_NODES)


class InvalidPlan(ValueError):
    """A plan that can't be taken; `field` says where."""

    code = "invalid_plan"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


def check_graph(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The topological order of a task graph's node ids (Kahn, ties in declared order).

    Raises:
        InvalidPlan: a repeated id, a dangling dependency or reference, a cycle, a tool node without its tool.
    """
    by_id: dict[str, Node] = {}
    for index, node in enumerate(nodes):
        at = f"nodes[{index}]"
        if node.id in by_id:
            raise InvalidPlan(f"{at}.id", f"{node.id} stands twice")
        if (node.tool is None) == (node.kind is Kind.TOOL):
            raise InvalidPlan(f"{at}.tool", "a node of kind tool names its tool, no other does")
        by_id[node.id] = node
    for index, node in enumerate(by_id.values()):
        if node.id in dependencies(node):
            raise InvalidPlan(f"nodes[{index}].depends_on", f"{node.id} depends on itself")
    return _order(by_id)


def dependencies(node: Node) -> tuple[str, ...]:
    """What must be done before a node: its `depends_on` and whatever its arguments refer to."""
    if not node.args and len(node.depends_on) < 2:
        return node.depends_on
    return tuple(dict.fromkeys((*node.depends_on, *(ref.node_id for ref in references(node.args)))))


def _order(by_id: Mapping[str, Node]) -> tuple[str, ...]:
    index = {node_id: i for i, node_id in enumerate(by_id)}
    missing = dict.fromkeys(by_id, 0)
    successors: dict[str, list[str]] = {node_id: [] for node_id in by_id}
    for node in by_id.values():
        for needed in _checked_dependencies(node, by_id, index[node.id]):
            successors[needed].append(node.id)
            missing[node.id] += 1
    order = [node_id for node_id, count in missing.items() if count == 0]
    for node_id in order:
        for successor in successors[node_id]:
            missing[successor] -= 1
            if missing[successor] == 0:
                order.append(successor)
    if len(order) < len(by_id):
        stuck = next(node_id for node_id, count in missing.items() if count > 0)
        raise InvalidPlan(f"nodes[{index[stuck]}].depends_on", f"{stuck} is in a cycle or behind one")
    return tuple(order)


def _checked_dependencies(node: Node, by_id: Mapping[str, Node], index: int) -> Iterator[str]:
    for position, needed in enumerate(node.depends_on):
        if needed not in by_id:
            raise InvalidPlan(f"nodes[{index}].depends_on[{position}]", f"no node {needed}")
    for reference in references(node.args):
        if reference.node_id not in by_id:
            raise InvalidPlan(f"nodes[{index}].args{reference.at}", f"refers to {reference.node_id}, which is no node")
    yield from dependencies(node)
