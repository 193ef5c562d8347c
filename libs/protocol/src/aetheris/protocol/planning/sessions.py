"""Sessions: a job makes the calls of code that runs outside, as that asks for them (docs/sessions.md). Pure.

Such a job has one node, whose body is the built-in workflow here. It waits for asks, one by one: the signal of the next
number. From the same asks and the same ends of calls, in the order of the log, follow the same calls: for the executor
that runs the body, and for the gateway, which says what became of an ask.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aetheris.protocol.base.canonical import InvalidArgs, digest
from aetheris.protocol.base.child_ids import child_id, frontier, weight
from aetheris.protocol.base.ids import NAME
from aetheris.protocol.base.words import HexDigits
from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.messages.registry_lines import RegistryEntry
from aetheris.protocol.plan.graph import (
    EffectClass,
    InvalidPlan,
    Kind,
    Name,
    Node,
    TaskGraph,
    ToolName,
    ToolPin,
    Wait,
    check_graph,
)

SESSION_NODE = "session"
"""The only node of a session's job."""
LONGEST_IDLE_S = 30 * 86_400.0
MOST_ASKS = 4_900
"""Of one session: each is two calls of its body at most, of which there may be 10,000."""
MOST_TRIES = 10
"""Of a model's equal call that surely fails each time."""

_ASKS = "ask."
"""Of the body's own waits; no call has such an id of its own."""
_MODELS = "said."
"""Of what models ask for: their ids say what they mean."""
_DIGITS = 24
_SCHEMA = {
    "type": "object",
    "properties": {"idle_timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_IDLE_S}},
    "required": ["idle_timeout_s"],
    "additionalProperties": False,
}
SESSION_ENTRY = RegistryEntry(
    name="aetheris.session",
    version="1",
    schema=_SCHEMA,
    schema_hash=digest(_SCHEMA),
    effect_class=EffectClass.PURE,
    kind="workflow",
    code_hash=digest("aetheris.session@2"),
)
"""What each executor can run. It is in no registry: only the gateway plans it, with the tools that a session names."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    body: Name
    """Who says it: the name under which the client's process has attached."""


class SessionAttach(_Said):
    """From here on this process of the client is the body, and no other; or one asks beside it."""

    beside: bool = False
    """It takes charge of nothing, and asks for what its models want, nothing else."""


class SessionCall(_Said):
    """A call that the client asks for."""

    tool: ToolName
    args: dict[str, Any] = Field(default_factory=dict)
    id: str | None = Field(default=None, pattern=f"^{NAME.pattern}$")
    """Its own name; else it is known by what it says, and by `occurrence`."""
    occurrence: int = Field(default=1, ge=1, le=MOST_ASKS)
    """How often the code has asked for it, this time included."""
    meaning: HexDigits | None = None
    """A model asks, and this is what it means: what means the same is the same call, unless `repeat_of` names it."""
    repeat_of: Name | None = None
    reads: bool = False
    """Its tool only reads, as its pin says."""
    frontier: str | None = None
    """Of code, the first time after it attached: that it has asked for all that was done before."""


class SessionComplete(_Said):
    """The session ends, with this result, when its open calls have."""

    result: Any = None
    frontier: str | None = None


class SessionAsk(BaseModel):
    """The payload of a session's signal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attach: SessionAttach | None = None
    call: SessionCall | None = None
    complete: SessionComplete | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "SessionAsk":
        if [self.attach, self.call, self.complete].count(None) != 2:
            raise ValueError("one of attach, call, complete")
        return self


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call of the body has ended, as the log says."""

    node_id: str
    outcome: Settled
    sure: bool = True
    """Of what is no success: whether it certainly took no effect, or a person has found so."""
    result: Any = None
    reason: str | None = None
    rejected_by: str | None = None


@dataclass(slots=True)
class MadeCall:
    """A call that was asked for, and planned."""

    node: Node
    reads: bool
    by_model: bool
    end: CallEnd | None = None

    @property
    def took_none(self) -> bool:
        """Whether it has surely failed."""
        return self.end is not None and self.end.outcome is not Settled.SUCCESS and self.end.sure

    @property
    def may_have_effect(self) -> bool:
        """Whether code that runs anew must ask for it first."""
        return not (self.reads or self.by_model or self.took_none)


@dataclass(frozen=True, slots=True)
class AskRefused:
    """Nothing comes of an ask, and nothing was planned.

    superseded, beside (who is beside another asks for what no model wants), unasked (what was done, and not asked for),
    changed (a call of that id is another), unknown_repeat,
    bad_call, full, over.
    """

    code: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How the session has ended: with what its client said, or an error."""

    result: Any = None
    error: str | None = None


Verdict = MadeCall | Node | AskRefused
"""A call that there is; one to be planned; or neither."""


@dataclass(slots=True)
class SessionBody:
    """The body of one session, as it follows from what it was told so far."""

    idle_timeout_s: float
    number: int = 0
    """Of the ask that it waits for."""
    in_charge: str | None = None
    calls: dict[str, MadeCall] = field(default_factory=dict[str, MadeCall])
    end: SessionEnd | None = None
    _attached: set[str] = field(default_factory=set[str])
    _beside: set[str] = field(default_factory=set[str])
    _expected: frozenset[str] = frozenset()
    _open: dict[str, None] = field(default_factory=dict[str, None])
    _latest: dict[str, int] = field(default_factory=dict[str, int])
    """Of calls of models, by what they mean: how many there are."""
    _completed: SessionComplete | None = None

    @property
    def wait_id(self) -> str:
        """The node by which it waits for its next ask."""
        return f"{SESSION_NODE}.{_ASKS}{self.number}"

    @property
    def key(self) -> str:
        """The correlation key of that ask."""
        return session_key(self.number)

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is asked of it."""
        return self._completed is not None or self.end is not None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The calls that it waits for, its own wait among them."""
        return (*self._open, *(() if self.is_ending else (self.wait_id,)))

    def wait(self) -> Node:
        """The node by which it waits for its next ask."""
        return Node(id=self.wait_id, kind=Kind.WAIT, wait=Wait(key=self.key, timeout_s=self.idle_timeout_s))

    def told(self, end: CallEnd) -> list[Node]:
        """A call of its own has ended: what it plans upon that."""
        call = self.calls.get(end.node_id)
        if call is not None:
            call.end = end
            self._open.pop(end.node_id, None)
            self._may_end()
            return []
        if self.is_ending or end.node_id != self.wait_id:
            return []
        planned = self._heard(end.result) if end.outcome is Settled.SUCCESS else self._heard_nothing(end)
        self.number += 1
        self._may_end()
        return planned if self.is_ending else [*planned, self.wait()]

    def may_attach(self, body: str) -> bool:
        """Whether a process takes charge by this name: once, ever, so that a repeat never does behind another."""
        return body not in self._attached

    def has_attached(self, body: str) -> bool:
        """Whether it may ask for something by this name."""
        return body == self.in_charge or body in self._beside

    def unasked(self, asked: Iterable[str]) -> tuple[str, ...]:
        """What code must ask for before it does anything new, but for what it has asked for."""
        return tuple(sorted(self._expected.difference(asked)))

    @property
    def expected(self) -> frozenset[str]:
        """What was done when the process in charge attached, and was not said to be asked for."""
        return self._expected

    @property
    def frontier(self) -> str:
        """What says that all of it was asked for."""
        return frontier(sum(map(weight, self._expected)))

    def judge(self, asked: SessionCall | SessionComplete) -> Verdict:
        """What comes of an ask as things stand; of an end, what refuses it, or its own wait."""
        if isinstance(asked, SessionCall):
            return self._judge_call(asked)
        return self._refuses(asked, held=True) or self.wait()

    def _judge_call(self, asked: SessionCall) -> Verdict:
        try:
            node, known = self._named(asked)
        except (ValidationError, InvalidArgs, InvalidPlan):
            return AskRefused("bad_call")
        except LookupError:
            return AskRefused("unknown_repeat")
        is_other = known is not None and (known.node.tool, known.node.args) != (node.tool, node.args)
        if is_other and asked.meaning is None:
            return AskRefused("changed", (node.id,))
        if self.end is not None:
            return known or AskRefused("over")
        no_say = self._no_say(asked)
        if no_say is not None or known is not None:
            return no_say or known or node
        return self._refuses(asked, held=asked.meaning is None and not asked.reads) or node

    def _refuses(self, asked: SessionCall | SessionComplete, *, held: bool) -> AskRefused | None:
        if self.is_ending:
            return AskRefused("over")
        no_say = self._no_say(asked)
        if no_say is not None:
            return no_say
        if held and self._expected and asked.frontier != self.frontier:
            return AskRefused("unasked", self.unasked(()))
        if isinstance(asked, SessionCall) and self.number >= MOST_ASKS:
            return AskRefused("full")
        return None

    def _no_say(self, asked: SessionCall | SessionComplete) -> AskRefused | None:
        if asked.body not in self._beside:
            return None if asked.body == self.in_charge else AskRefused("superseded")
        wanted_by_model = isinstance(asked, SessionCall) and asked.meaning is not None
        return None if wanted_by_model else AskRefused("beside")

    def _named(self, asked: SessionCall) -> tuple[Node, MadeCall | None]:
        """The node that it would be, and the call of that id that there is.

        Raises:
            ValidationError, InvalidArgs, InvalidPlan: it can be no call.
            LookupError: what a model would repeat is none.
        """
        name, count = asked.id, 1
        if asked.meaning is not None:
            said = f"{SESSION_NODE}.{_MODELS}{digest([asked.tool, asked.meaning])[:_DIGITS]}"
            number, count = self._place(said, asked)
            node_id = f"{said}.{number}"
        elif name is not None:
            if name.startswith((_ASKS, _MODELS)) or name.endswith(".undo"):
                raise InvalidPlan("id", "is the system's own")
            node_id = f"{SESSION_NODE}.{name}"
        else:
            count = asked.occurrence
            node_id = child_id(SESSION_NODE, asked.tool, asked.args, count)
        node = Node(id=node_id, tool=asked.tool, args=asked.args, occurrence=count)
        check_graph((node,))
        return node, self.calls.get(node.id)

    def _place(self, said: str, asked: SessionCall) -> tuple[int, int]:
        """Which of the equal calls a model means: the latest, or one more where that certainly harms nobody.

        Also how often it was meant until then, this one included: once more because the one before took no effect is
        the same occurrence, so that nobody is asked for a yes as for a repeat.

        Raises:
            LookupError: what it would repeat is no such call.
        """
        latest = self._latest.get(said, 0)
        if asked.repeat_of is not None:
            before, _, number = asked.repeat_of.rpartition(".")
            if before != said or not number.isdecimal() or not 1 <= int(number) <= latest:
                raise LookupError(asked.repeat_of)
            if int(number) < latest:
                return int(number) + 1, self.calls[f"{said}.{int(number) + 1}"].node.occurrence
        if latest == 0:
            return 1, 1
        last = self.calls[f"{said}.{latest}"]
        same, again = (latest, last.node.occurrence), (latest + 1, last.node.occurrence)
        if last.end is None or (self.is_ending and asked.repeat_of is None):
            return same
        if last.end.outcome is not Settled.SUCCESS:
            return again if last.took_none and (asked.reads or self._may_try(said, latest)) else same
        if asked.repeat_of is not None:
            return latest + 1, last.node.occurrence + 1
        return again if asked.reads else same

    def _may_try(self, said: str, latest: int) -> bool:
        """Whether one of the last tries was no failure, or there were not many yet."""
        last = range(latest, latest - MOST_TRIES, -1)
        return latest < MOST_TRIES or not all(self.calls[f"{said}.{number}"].took_none for number in last)

    def _heard(self, payload: Any) -> list[Node]:
        try:
            ask = SessionAsk.model_validate(payload)
        except ValidationError:
            return []
        if ask.attach is not None:
            self._attach(ask.attach)
        elif ask.complete is not None:
            if not isinstance(self.judge(ask.complete), AskRefused):
                self._completed = ask.complete
        elif ask.call is not None:
            return self._plan(ask.call)
        return []

    def _attach(self, asked: SessionAttach) -> None:
        if not self.may_attach(asked.body):
            return
        self._attached.add(asked.body)
        if asked.beside:
            self._beside.add(asked.body)
            return
        self.in_charge = asked.body
        self._expected = frozenset(name for name, call in self.calls.items() if call.may_have_effect)

    def _plan(self, asked: SessionCall) -> list[Node]:
        node = self.judge(asked)
        if not isinstance(node, Node):
            return []
        by_model = asked.meaning is not None
        if not (by_model or asked.reads):
            self._expected = frozenset()
        self.calls[node.id] = MadeCall(node, asked.reads, by_model)
        self._open[node.id] = None
        if by_model:
            said, _, number = node.id.rpartition(".")
            self._latest[said] = max(int(number), self._latest.get(said, 0))
        return [node]

    def _heard_nothing(self, end: CallEnd) -> list[Node]:
        """Nobody has asked for long: that ends it, unless a call of it is open."""
        if not self._open:
            idle = end.rejected_by == RejectReason.EXPIRED
            self.end = SessionEnd(error="idle: nobody has called for so long" if idle else f"{end.reason}")
        return []

    def _may_end(self) -> None:
        if self._completed is not None and not self._open and self.end is None:
            self.end = SessionEnd(self._completed.result)


def session_key(number: int | str) -> str:
    """The correlation key of a session's ask; of "", how each begins."""
    return f"{SESSION_NODE}.{number}"


def session_graph(idle_timeout_s: float, pins: Mapping[str, ToolPin], own: ToolPin) -> TaskGraph:
    """The plan of a session that may call the pinned tools; `own`: the pin of `SESSION_ENTRY`."""
    node = Node(id=SESSION_NODE, kind=Kind.WORKFLOW, tool=SESSION_ENTRY.name, args={"idle_timeout_s": idle_timeout_s})
    return TaskGraph(tools={**pins, SESSION_ENTRY.name: own}, nodes=(node,))


def is_session(graph_node: Node) -> bool:
    """Whether a node is a session's."""
    return graph_node.kind is Kind.WORKFLOW and graph_node.tool == SESSION_ENTRY.name
