"""Plans: a task graph of nodes, the tools it pins, and what makes one valid (docs/plans.md)."""

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, cast

from msgspec import MsgspecError
from msgspec.json import decode, encode
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints, TypeAdapter

from aetheris.protocol.base.hidden_values import LONGEST_SUBJECT, HiddenPlace, InvalidHidden, hidden_places
from aetheris.protocol.base.references import InvalidSecret, Reference, SecretUse, are_plain, references, secrets
from aetheris.protocol.plan.forms import FormSpec, NamedPerson, PersonPointer, personal_places

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]

CorrelationKey = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]

PayloadPointer = Annotated[str, StringConstraints(pattern=r"^(/[^\x00]*)?$", max_length=LONGEST_SUBJECT)]

DuplicateScope = Literal["job", "session", "tenant"]
"""Where an irreversible call that means the same as one that was done is refused."""

LONGEST_DUPLICATE_WINDOW_S = 30 * 86_400.0
"""For how long from then on, at most."""

OnInDoubt = Literal["park", "fail"]
"""What becomes of a call that stays in doubt: it waits for a human, or it has failed and nobody knows."""

Confirmation = Literal["strict", "warn", "human_in_loop"]
"""What becomes of a job that goes on again, where a recorded effect that it builds on can't be confirmed."""

MAX_PLAN_BYTES = 400 * 1024
"""A plan lies twice in the group that creates a job, which must fit one record batch."""
MAX_NODES = 10_000
MAX_NAME = 64
"""Characters of an id."""

_MOST_SHARED = 32 * 1024
"""Bytes of pins that are held for others to share: all that are held come to some MiB."""

TEN_YEARS_S = 10 * 366 * 86_400.0

ToolTimeout = Annotated[float, Field(gt=0, le=TEN_YEARS_S, allow_inf_nan=False)]
SettlesWithin = Annotated[float, Field(ge=0, le=TEN_YEARS_S, allow_inf_nan=False)]
DuplicateWindow = Annotated[float, Field(gt=0, le=LONGEST_DUPLICATE_WINDOW_S, allow_inf_nan=False)]


class Kind(StrEnum):
    """What a node does."""

    TOOL = "tool"
    LLM = "llm"
    HUMAN = "human"
    WAIT = "wait"
    TIMER = "timer"
    TIME = "time"
    RANDOM = "random"
    WORKFLOW = "workflow"


MOST_PERSONAL = 100
"""Places in one signal's payload."""


class EffectKind(StrEnum):
    """What an effect is: that of its node, or what a tool says that its calls are."""

    TOOL = "tool"
    LLM = "llm"
    HTTP = "http"
    HUMAN = "human"
    TIME = "time"
    RANDOM = "random"


RUNNABLE = frozenset({Kind.TOOL, Kind.LLM, Kind.TIME, Kind.RANDOM})
"""The kinds that an executor runs."""

AWAITED = frozenset({Kind.WAIT, Kind.TIMER, Kind.HUMAN})
"""The kinds that nobody runs: they end when what they wait for has come (docs/waits.md)."""


LOCAL_READ, LOCAL_ACT = "local.read", "local.act"
LOCAL_TOOLS = frozenset({LOCAL_READ, LOCAL_ACT})
"""Tools whose calls a workflow's own functions make, in the process of the body that asks for them."""

JOB_START, JOB_CONTINUE = "jobs.start", "jobs.continue"
JOB_TOOLS = frozenset({JOB_START, JOB_CONTINUE})
"""Tools by whose calls a workflow has other jobs begin: beside it, and behind its end (docs/workflows.md)."""

OWN_TOOLS = LOCAL_TOOLS | JOB_TOOLS
"""Tools whose calls the system makes of a body's own words: their arguments refer to nothing."""

WORKFLOW_NODE = "workflow"
"""The only node of a job that runs one workflow."""


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


def settling_s(effect_class: str, timeout_s: float, stated_s: float | None) -> float | None:
    """How long after its sender's end a request may still take effect: as stated, else a probeable tool's timeout.

    Where nothing is stated of a tool that nobody asks about, None.
    """
    if stated_s is None:
        return timeout_s if effect_class == EffectClass.PROBEABLE else None
    return max(0.0, stated_s)


class ToolPin(BaseModel):
    """The registry entry that a plan was made with; the planner may raise `irreversible`, never lower it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: str
    schema_hash: str
    effect_class: EffectClass
    irreversible: bool = False
    volatile: tuple[str, ...] = ()
    timeout_s: float = 30.0
    settles_within_s: float | None = None
    on_in_doubt: OnInDoubt | None = None
    duplicate_scope: DuplicateScope = "job"
    duplicate_window_s: float = 86_400.0

    @property
    def settles_s(self) -> float:
        """How long after its sender's end a request may still take effect, also where the pin doesn't say."""
        return settling_s(self.effect_class, self.timeout_s, self.settles_within_s) or 0.0


_PINS = TypeAdapter(dict[ToolName, ToolPin])


class JobOptions(BaseModel):
    """What a submission asks for the whole job; it goes before what its tools declare."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    on_in_doubt: OnInDoubt | None = None
    confirmation: Confirmation | None = None
    trace: StrictBool | None = None
    """Whether its calls are traced, whatever the share of jobs is that are."""


class Wait(_Strict):
    """What a node waits for: a signal by its key, or a time; and for how long at most.

    `personal`: what of the signal's payload is a person's, and is recorded hidden (docs/hidden-values.md): a JSON
    Pointer to it ("": all of it) → a JSON Pointer to what of the payload names the person; or its name.
    """

    key: CorrelationKey | None = None
    personal: dict[PayloadPointer, PersonPointer | NamedPerson] | None = Field(
        default=None, min_length=1, max_length=MOST_PERSONAL
    )
    timeout_s: float | None = Field(default=None, gt=0, le=TEN_YEARS_S)
    for_s: float | None = Field(default=None, ge=0, le=TEN_YEARS_S)
    until: str | None = None


class Compensation(_Strict):
    """The call that undoes a node; its arguments may refer to what the node, or one that it needs, returned."""

    tool: ToolName
    args: dict[str, Any] = Field(default_factory=dict)
    retry: Retry | None = None


class Node(_Strict):
    """One step of a plan; `compensates` stands only where the planner undoes a node."""

    id: Name
    kind: Kind = Kind.TOOL
    tool: ToolName | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    depends_on: tuple[Name, ...] = ()
    retry: Retry | None = None
    compensate_with: Compensation | None = None
    compensates: Name | None = None
    occurrence: int = Field(default=1, ge=1)
    irreversible: bool = False
    timeout_s: float | None = Field(default=None, gt=0, le=TEN_YEARS_S)
    """Shortens the tool's for this node; never lengthens it."""
    wait: Wait | None = None
    form: FormSpec | None = None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "Node":
        """A copy; what was worked out of the original's arguments is worked out anew."""
        copied = super().model_copy(update=update, deep=deep)
        for derived in ("is_plain", "references", "refs", "adopted", "secrets", "hidden"):
            vars(copied).pop(derived, None)
        return copied

    @cached_property
    def is_plain(self) -> bool:
        """Whether its arguments refer to nothing, and hold neither secrets nor hidden values."""
        return are_plain(self.args)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """What its arguments refer to."""
        return () if self.is_plain else tuple(references(self.args))

    @cached_property
    def refs(self) -> tuple[Reference, ...]:
        """Of them, those to nodes of its own job: it comes after these."""
        return () if self.is_plain else tuple(one for one in self.references if not one.is_adopted)

    @cached_property
    def adopted(self) -> tuple[Reference, ...]:
        """Of them, those to what its job has adopted."""
        return () if self.is_plain else tuple(one for one in self.references if one.is_adopted)

    @cached_property
    def secrets(self) -> tuple[SecretUse, ...]:
        """The secrets that its arguments name."""
        return () if self.is_plain else tuple(secrets(self.args))

    @cached_property
    def hidden(self) -> tuple[HiddenPlace, ...]:
        """The hidden values among its arguments."""
        return () if self.is_plain else tuple(hidden_places(self.args))

    @property
    def tool_name(self) -> str:
        """The name that enters the idempotency key; kinds without a tool are their own."""
        return self.tool if self.tool is not None else self.kind.value


class TaskGraph(_Strict):
    """What a job is to do: nodes in declared order; there are no edges beside `depends_on`."""

    tools: dict[ToolName, ToolPin] = Field(default_factory=dict)
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=MAX_NODES)

    @property
    def has_bodies(self) -> bool:
        """Whether there are nodes that plan calls themselves."""
        return any(node.kind is Kind.WORKFLOW for node in self.nodes)


def read_graph(said: Any) -> TaskGraph:
    """A task graph as a record says it; pins that other jobs have as well, which are most of it, are the same objects.

    Raises:
        ValidationError: Pydantic's; it is no graph.
    """
    tools = cast("dict[str, Any]", said).get("tools") if isinstance(said, dict) else None
    if isinstance(tools, dict) and tools:
        with suppress(MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
            written = encode(tools)
            if len(written) <= _MOST_SHARED:
                said = {**cast("dict[str, Any]", said), "tools": _pins(written)}
    return TaskGraph.model_validate(said)


@lru_cache(maxsize=256)
def _pins(written: bytes) -> Mapping[str, ToolPin]:
    """Raises ValidationError, which is a ValueError."""
    return _PINS.validate_python(decode(written))


class InvalidPlan(ValueError):
    """A plan that can't be taken; `field` says where."""

    code = "invalid_plan"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


def check_graph(
    nodes: Iterable[Node], adopted: Container[str] = frozenset(), done: Container[str] = frozenset()
) -> tuple[str, ...]:
    """The topological order of a task graph's node ids (Kahn, ties in declared order).

    Args:
        adopted: the steps of earlier jobs that it may refer to, as references call them.
        done: nodes that are none of it, and that it may need.

    Raises:
        InvalidPlan: a repeated id, a dangling dependency or reference, a cycle, a tool node without its tool, a wait
            that says nothing, a secret that no tool is given.
    """
    by_id: dict[str, Node] = {}
    keys: set[str] = set()
    tool, human = Kind.TOOL, Kind.HUMAN  # a look into an enum takes as long as the rest of a test
    for index, node in enumerate(nodes):
        kind = node.kind
        if node.id in by_id:
            raise InvalidPlan(f"nodes[{index}].id", f"{node.id} stands twice")
        if (node.tool is None) == (kind is tool or kind is Kind.WORKFLOW):
            raise InvalidPlan(f"nodes[{index}].tool", "a node of kind tool or workflow names its own, no other does")
        if node.timeout_s is not None and kind is not tool:
            raise InvalidPlan(f"nodes[{index}].timeout_s", "only a call of a tool has one; a wait has its own")
        if node.wait is not None or kind in AWAITED:
            _check_wait(node, node.wait or Wait(), f"nodes[{index}]", keys)
        if (node.form is not None) is not (kind is human):
            raise InvalidPlan(f"nodes[{index}].form", "a node of kind human has a form, no other does")
        if not node.is_plain or node.compensate_with is not None:
            _check_withheld(node, f"nodes[{index}]")
        if not node.is_plain and node.adopted:
            _check_adopted(node.adopted, adopted, f"nodes[{index}].args")
        by_id[node.id] = node
    for index, node in enumerate(by_id.values()):
        if node.id in node.depends_on or (not node.is_plain and any(node.id == ref.node_id for ref in node.refs)):
            raise InvalidPlan(f"nodes[{index}].depends_on", f"{node.id} depends on itself")
        if node.compensate_with is not None:
            at = f"nodes[{index}].compensate_with"
            given = tuple(references(node.compensate_with.args))
            _check_adopted((one for one in given if one.is_adopted), adopted, f"{at}.args")
            _check_compensation(node, (one for one in given if not one.is_adopted), by_id, at)
    return _order(by_id, done)


def undo_id(node_id: str) -> str:
    """The node that compensates a node."""
    return f"{node_id}.undo"


def compensation_of(node: Node) -> Node | None:
    """The node that undoes a node, as its plan declares it; None if it declares none.

    It depends on nothing but what its arguments refer to; its occurrence is that of what it undoes.
    """
    call = node.compensate_with
    if call is None:
        return None
    return Node(
        id=undo_id(node.id),
        tool=call.tool,
        args=call.args,
        retry=call.retry,
        occurrence=node.occurrence,
        compensates=node.id,
    )


def tools_of(node: Node) -> tuple[str, ...]:
    """The tools that a node may call: its own, and the one that undoes it."""
    own = () if node.tool is None else (node.tool,)
    return own if node.compensate_with is None else (*own, node.compensate_with.tool)


def hides(node: Node) -> frozenset[str]:
    """The places in a node's result, as JSON Pointers, whose values are hidden: answers, or parts of a signal."""
    if node.form is not None:
        return personal_places(node.form)
    return frozenset(node.wait.personal or ()) if node.wait is not None else frozenset()


def dependencies(node: Node) -> tuple[str, ...]:
    """What must be done before a node: its `depends_on` and whatever its arguments refer to."""
    if len(node.depends_on) < 2 and (node.is_plain or not node.refs):
        return node.depends_on
    return tuple(dict.fromkeys((*node.depends_on, *(ref.node_id for ref in node.refs))))


def _check_wait(node: Node, wait: Wait, at: str, keys: set[str]) -> None:
    """A wait node names a key of its own, a timer one time; a human may have a timeout; no other node waits."""
    if node.kind not in AWAITED:
        raise InvalidPlan(f"{at}.wait", f"a node of kind {node.kind} waits for nothing")
    if node.args and node.kind is not Kind.HUMAN:
        raise InvalidPlan(f"{at}.args", f"a node of kind {node.kind} takes none")
    if (wait.key is not None) != (node.kind is Kind.WAIT):
        raise InvalidPlan(f"{at}.wait.key", "a node of kind wait names the key of its signal, no other does")
    if wait.personal is not None:
        _check_personal(node, wait.personal, f"{at}.wait.personal")
    if wait.key in keys:
        raise InvalidPlan(f"{at}.wait.key", "another node waits for this key")
    if wait.key is not None:
        keys.add(wait.key)
    if ((wait.for_s is None) != (wait.until is None)) != (node.kind is Kind.TIMER):
        raise InvalidPlan(f"{at}.wait", "a timer has either for_s or until, no other node has one")
    if wait.timeout_s is not None and node.kind is Kind.TIMER:
        raise InvalidPlan(f"{at}.wait.timeout_s", "a timer has no timeout beside its time")
    if wait.until is not None and not _is_moment(wait.until):
        raise InvalidPlan(f"{at}.wait.until", "must be a time with its zone, as in RFC 3339")


def _check_personal(node: Node, personal: Iterable[str], at: str) -> None:
    if node.kind is not Kind.WAIT:
        raise InvalidPlan(at, "only a node of kind wait has one: a form says it of its fields")
    for place in personal:
        if any(other != place and place.startswith(f"{other}/") for other in personal):
            raise InvalidPlan(at, f"{place} is a part of another place")


def _check_withheld(node: Node, at: str) -> None:
    """Only a tool is given secrets and hidden values; whether it is given this one is for the executor to say."""
    undo = node.compensate_with
    for place, args in (("args", node.args), ("compensate_with.args", undo.args if undo is not None else {})):
        try:
            used = tuple(secrets(args)) if args else ()
            hidden = tuple(hidden_places(args)) if args else ()
        except InvalidSecret as wrong:
            raise InvalidPlan(f"{at}.{place}{wrong.at}", 'a secret is written {"$secret": "name@version"}') from None
        except InvalidHidden as wrong:
            raise InvalidPlan(f"{at}.{place}{wrong.at}", "no hidden value") from None
        if used and node.kind is not Kind.TOOL:
            raise InvalidPlan(f"{at}.{place}{used[0].at}", "only a tool's arguments may name a secret")
        if hidden and node.kind is not Kind.TOOL:
            raise InvalidPlan(f"{at}.{place}{hidden[0].at}", "only a tool's arguments may hold a hidden value")


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _check_adopted(used: Iterable[Reference], adopted: Container[str], at: str) -> None:
    for one in used:
        if one.node_id not in adopted:
            raise InvalidPlan(f"{at}{one.at}", f"refers to {one.node_id}, which the job has not adopted")


def _check_compensation(node: Node, used: Iterable[Reference], by_id: Mapping[str, Node], at: str) -> None:
    undo = undo_id(node.id)
    taken = by_id.get(undo)
    if node.kind is not Kind.TOOL:
        raise InvalidPlan(at, "only a node of kind tool is compensated")
    if len(undo) > MAX_NAME:
        raise InvalidPlan(at, f"{undo}, its own node, would have more than {MAX_NAME} characters")
    if taken is not None and taken.compensates != node.id:
        raise InvalidPlan(at, f"{undo}, its own node, is another node of the plan")
    known = {node.id, *dependencies(node)}
    for reference in used:
        if reference.node_id not in known:
            raise InvalidPlan(
                f"{at}.args{reference.at}", f"refers to {reference.node_id}, which {node.id} does not need"
            )


def _order(by_id: Mapping[str, Node], done: Container[str]) -> tuple[str, ...]:
    missing: dict[str, int] = {}
    successors: dict[str, list[str]] = {node_id: [] for node_id in by_id}
    for index, node in enumerate(by_id.values()):
        needs = dependencies(node)
        if done:
            needs = tuple(needed for needed in needs if needed in by_id or needed not in done)
        for needed in needs:
            if needed not in by_id:
                raise _dangling(node, by_id, done, index)
            successors[needed].append(node.id)
        missing[node.id] = len(needs)
    order = [node_id for node_id, count in missing.items() if count == 0]
    for node_id in order:
        for successor in successors[node_id]:
            missing[successor] -= 1
            if missing[successor] == 0:
                order.append(successor)
    if len(order) < len(by_id):
        index, stuck = next((i, node_id) for i, (node_id, count) in enumerate(missing.items()) if count > 0)
        raise InvalidPlan(f"nodes[{index}].depends_on", f"{stuck} is in a cycle or behind one")
    return tuple(order)


def _dangling(node: Node, by_id: Mapping[str, Node], done: Container[str], index: int) -> InvalidPlan:
    """Where a node needs one that the plan does not have."""
    for position, needed in enumerate(node.depends_on):
        if needed not in by_id and needed not in done:
            return InvalidPlan(f"nodes[{index}].depends_on[{position}]", f"no node {needed}")
    missing = next(one for one in node.refs if one.node_id not in by_id and one.node_id not in done)
    return InvalidPlan(f"nodes[{index}].args{missing.at}", f"refers to {missing.node_id}, which is no node")
