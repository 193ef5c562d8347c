"""The external system: it counts. Nothing there deduplicates, but for what idempotent tools promise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.plan.graph import EffectClass
from aetheris.sdk.outcomes import InDoubt, Outcome, Permanent, Retryable, Succeeded
from aetheris.tool_executor.core.tries import DeclaredInvocation


class CallFate(Enum):
    """What becomes of a call; the first is the usual one."""

    ANSWERED = auto()
    PARTIAL = auto()
    REFUSED = auto()
    """Certainly not executed, and it says so."""
    FAILED = auto()
    """No effect, ever, and it says so."""
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    RESET = auto()
    """The connection is, while the request is under way: it may still arrive."""
    LATE = auto()
    """The caller gives up; the call takes effect afterwards."""
    ORPHANED = auto()
    """A child of the caller makes it, and lives on when the caller crashes."""


BAD_FATES = (
    CallFate.ANSWER_LOST,
    CallFate.LATE,
    CallFate.REQUEST_LOST,
    CallFate.RESET,
    CallFate.LATE,
    CallFate.RESET,
    CallFate.REFUSED,
    CallFate.FAILED,
    CallFate.PARTIAL,
    CallFate.ORPHANED,
    CallFate.ORPHANED,
)
"""How a call goes wrong, the likely ones more than once."""


SETTLES_S = 4.0
"""What probeable tools promise: so long after its sender's end, at most, a request is under way."""

SLOWEST_S = 3.9
"""Longest way of a request: shorter than what is promised."""

LATEST_S = 30.0
"""How long after it was begun a call that its caller has given up acts at most, for its caller lives."""

NEVER_LANDS = frozenset({CallFate.REFUSED, CallFate.FAILED, CallFate.REQUEST_LOST})
EARLY = frozenset({CallFate.RESET, CallFate.LATE})
"""What the caller hears of before the request has arrived."""
_LONG = frozenset({CallFate.LATE, CallFate.ORPHANED})
RAISES = frozenset({CallFate.REQUEST_LOST, CallFate.ANSWER_LOST, CallFate.RESET})
"""The caller's own code does, and can act no more; of a call that is LATE, it may."""


@dataclass(slots=True, eq=False)
class ExternalCall:
    """One request to the external system, under one invocation_id."""

    job_id: str
    node_id: str
    key: str
    invocation_id: str
    external_key: str
    args: bytes
    tool: str
    effect_class: EffectClass
    irreversible: bool
    content: tuple[str, int]
    life: tuple[str, str]
    """worker_id and incarnation of its sender."""
    fate: CallFate
    sent_s: float
    lands_from_s: float
    """It arrives some time from then on."""
    lands_until_s: float = float("inf")
    """A call that has not landed by then never will."""
    landed: bool = False
    gone: bool = False
    """It will not land any more."""
    answered: bool = False
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a model answers."""
    result: Any = None

    @property
    def may_land(self) -> bool:
        """Whether it may still take effect."""
        return not self.landed and not self.gone

    def cut_off(self, now_s: float) -> None:
        """Its sender can act no more: what it sent is under way for as long as the tool says, and no longer."""
        if self.effect_class is EffectClass.PROBEABLE:
            self.lands_until_s = min(self.lands_until_s, now_s + SLOWEST_S)

    def answer(self) -> Outcome:
        """What the caller gets to know."""
        if self.fate is CallFate.REFUSED:
            return Retryable("NotExecuted")
        if self.fate is CallFate.FAILED:
            return Permanent("Failed")
        if self.fate in RAISES:
            return InDoubt("ConnectionResetError", returned=True)
        if self.fate is CallFate.LATE or not self.landed:
            return InDoubt("TimeoutError")
        return Succeeded(self.result, partial=self.fate is CallFate.PARTIAL)


@dataclass(frozen=True, slots=True)
class ExternalEffect:
    """Something that happened outside."""

    call: ExternalCall
    result: Any


@dataclass(slots=True)
class SimulatedExternalSystem:
    """What happened, in order, and what is still on its way there."""

    effects: list[ExternalEffect] = field(default_factory=list[ExternalEffect])
    under_way: list[ExternalCall] = field(default_factory=list[ExternalCall])
    results: dict[tuple[str, str], list[Any]] = field(default_factory=dict[tuple[str, str], list[Any]])
    """(job_id, node_id) → everything that was ever answered, or could have been."""
    deleted: set[str] = field(default_factory=set[str])
    """External keys whose effect somebody has taken away again."""
    _count: int = 0

    def send(self, call: ExternalCall) -> None:
        """The request is on its way."""
        call.gone = call.fate in NEVER_LANDS
        self.under_way.append(call)

    def land(self, call: ExternalCall) -> ExternalEffect | None:
        """It arrives; None where it changes nothing there (a read, or a repeat that the external system knows)."""
        call.landed = True
        earlier = self.found(call.external_key) if call.effect_class is EffectClass.IDEMPOTENT else None
        if earlier is not None:
            call.result = earlier.result
            return None
        self._count += 1
        call.result = {"v": self._count, **call.said}
        self.results.setdefault((call.job_id, call.node_id), []).append(call.result)
        if call.effect_class is EffectClass.PURE:
            return None
        self.deleted.discard(call.external_key)
        self.effects.append(ExternalEffect(call, call.result))
        return self.effects[-1]

    def found(self, external_key: str) -> ExternalEffect | None:
        """What the external system knows under an external key."""
        if external_key in self.deleted:
            return None
        return next((effect for effect in self.effects if effect.call.external_key == external_key), None)

    def of_node(self, job_id: str, node_id: str) -> list[ExternalEffect]:
        """The effects of a node."""
        return [one for one in self.effects if (one.call.job_id, one.call.node_id) == (job_id, node_id)]

    def settle(self) -> None:
        """Forget calls that are over on both sides."""
        self.under_way = [call for call in self.under_way if call.may_land or not call.answered]


def call_of(invocation: DeclaredInvocation, fate: CallFate, now_s: float, slow: float) -> ExternalCall:
    """The request that a cleared try makes; `slow` (0 to 1) says how much of its time it takes on the way."""
    started, entry = invocation.started, invocation.call.entry
    return ExternalCall(
        job_id=started.job_id,
        node_id=started.node_id,
        key=started.idempotency_key,
        invocation_id=started.invocation_id,
        external_key=started.external_key,
        args=canonical(invocation.call.args),
        tool=started.tool_name,
        effect_class=entry.effect_class,
        irreversible=entry.irreversible,
        content=(started.content_key, started.occurrence),
        life=(started.worker_id, started.incarnation),
        fate=fate,
        sent_s=now_s,
        lands_from_s=now_s + slow * (LATEST_S if fate in _LONG else SLOWEST_S),
    )
