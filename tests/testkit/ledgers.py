"""Ledgers of one job that come and go, and what outlives them: the log, the effect store, the leases."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from aetheris.ledger.core.decisions import (
    Answered,
    Ask,
    Barrier,
    Confirm,
    Decision,
    DuplicateLine,
    Emit,
    Facts,
    Grant,
    Now,
    PolicyTaken,
    RulesTaken,
    View,
)
from aetheris.ledger.core.limits import LedgerLimits, QuarantineLimits
from aetheris.ledger.core.live_jobs import DecisionContext, WorkerLife
from aetheris.ledger.core.partition import Partition
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.revocations import NONE_REVOKED, Revocations
from aetheris.protocol.fold.state import JobState, KeyState
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import (
    ContentRecord,
    FreezeAnswer,
    FreezeOrder,
    LedgerRecord,
    PartitionBarrier,
    PolicyActivation,
    PolicyAnswer,
    RegistryEntry,
    Resolve,
    RulesAnswer,
    ToolGrant,
    ToolRequest,
    Verification,
)
from aetheris.protocol.messages.event_values import Answer, Change
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.policy import Policy
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.tool_placement import ToolPlacement
from aetheris.runtime.process.policy_file import load
from tests.testkit.body_histories import with_bodies, worded
from tests.testkit.histories import JOB, TENANT, about, created, finished, graph, key_of, planned, started
from tests.testkit.principals import said_by

TTL_S = 5.0
SETTLES_S = 20.0
START = datetime(2030, 1, 1, tzinfo=UTC)
ALLOW_ALL = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"'
EffectKind = str


def limits(**changes: Any) -> LedgerLimits:
    base: dict[str, Any] = {
        "lease_ttl_s": TTL_S,
        "end_wait_s": 2 * TTL_S,
        "probe_wait_s": 30.0,
        "probe_backoff_s": 1.0,
        "probe_tries": 3,
        "max_tries": 4,
        "on_in_doubt": "park",
        "runs": True,
        "quarantine": QuarantineLimits(0, 1, 1.0, 1.0),
    }
    return LedgerLimits(**(base | changes))


def one(effect_class: EffectKind, **node: Any) -> dict[str, Any]:
    return graph({"id": "a"} | node, act={"effect_class": effect_class, "settles_within_s": SETTLES_S, "timeout_s": 3})


@dataclass
class Surroundings:
    """A log, an effect store and leases that outlive the ledgers on them."""

    plan: dict[str, Any]
    policy: Policy = field(default_factory=lambda: load(None))
    limits: LedgerLimits = field(default_factory=limits)
    log: list[Event] = field(default_factory=list[Event])
    ids: list[str] = field(default_factory=list[str])
    times: dict[int, float] = field(default_factory=dict[int, float])
    """Offset → when it was appended, in seconds since 1970."""
    ended: dict[WorkerLife, Ended] = field(default_factory=dict[WorkerLife, Ended])
    tools: dict[str, RegistryEntry] = field(default_factory=dict[str, RegistryEntry])
    signers: AllowedSigners = field(default_factory=AllowedSigners)
    effects: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    held: set[str] = field(default_factory=set[str])
    orders: list[FreezeOrder] = field(default_factory=list[FreezeOrder])
    """The topic of freezes."""
    revocations: Revocations = NONE_REVOKED
    redis_answers: bool = True
    raises: bool = True
    """Whether what the core could not judge is raised here, or stands in its list."""
    placement: ToolPlacement | None = None
    lost_s: float | None = None
    now_s: float = 1000.0
    clock_off_s: float = 0.0

    def __post_init__(self) -> None:
        bodies = any(node["kind"] == "workflow" for node in self.plan["nodes"])
        self.log = [created(), with_bodies(self.plan) if bodies else planned(self.plan)]
        self.ids = ["", ""]

    def now(self) -> Now:
        return Now(self.now_s, START + timedelta(seconds=self.now_s + self.clock_off_s))

    def ledger(self) -> "Ledger":
        return Ledger(self)

    def facts(self) -> Facts:
        if not self.redis_answers:
            return Facts(None, None, self.lost_s)
        return Facts(self.effects, dict.fromkeys(self.held, True), self.lost_s)


class Ledger:
    """A process: folds the world's log, carries decisions out until nothing more follows from them."""

    def __init__(
        self,
        surroundings: Surroundings,
        activated: tuple[int, str] | None = None,
        context: DecisionContext | None = None,
    ) -> None:
        """`activated`: number and policy that it knows before it reads the log; `context`: its process's."""
        self.surroundings = surroundings
        fresh = count()
        tools = surroundings.tools
        ids = (lambda: f"id-{id(self)}-{next(fresh)}", lambda: 1.0)
        self.freezes = context.freezes if context is not None else FreezeOrders()
        self.policies = context.policies if context is not None else PolicyInForce(surroundings.signers)
        if activated is not None:
            self.policies.take(_activation(*activated))
        self.policy_answers: list[PolicyAnswer] = []
        self.rules_answers: list[RulesAnswer] = []
        self.context = context or DecisionContext(
            surroundings.policy,
            surroundings.limits,
            *ids,
            lambda name, _version: tools.get(name),
            signers=surroundings.signers,
            freezes=self.freezes,
            revocations=surroundings.revocations,
            policies=self.policies,
            placement=surroundings.placement,
        )
        self.core = Partition(self.context, surroundings.ended)
        for order in surroundings.orders:
            self.freezes.take(order)
        for order in self.freezes.all():
            self.core.ordered(order, surroundings.now())
        self.read = 0
        self.grants: list[ToolGrant] = []
        self.asks: list[Verification] = []
        self.records: list[LedgerRecord] = []
        self.lines: list[ContentRecord] = []
        self.barriers: list[PartitionBarrier] = []
        self.answers: list[FreezeAnswer] = []
        self._fold()
        self.core.restored(surroundings.now())
        self.settle()

    def _fold(self) -> None:
        for event in self.surroundings.log[self.read :]:
            at_s = self.surroundings.times.setdefault(self.read, self.surroundings.now().wall.timestamp())
            self.core.evolve(event, self.read, self.surroundings.now(), at_s)
            self.read += 1

    def settle(self) -> None:
        """Rounds, until one decides nothing that the log would have to carry, and nothing is due any more."""
        for _ in range(20):
            self._fold()
            self.core.to_fetch(self.surroundings.now())
            decided = self.core.decide(self.surroundings.facts(), self.surroundings.now())
            for failure in self.core.unjudged.take() if self.surroundings.raises else ():
                raise failure.error
            if not [self._carry_out(decision) for decision in decided] and not self._is_due():
                return
        raise AssertionError("the ledger never comes to rest")

    def _is_due(self) -> bool:
        due_s = self.core.next_due()
        return due_s is not None and due_s <= self.surroundings.now_s

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Emit():
                self.surroundings.log += [written.event for written in decision.events]
                self.surroundings.ids += [written.id for written in decision.events]
            case Grant():
                self.grants.append(decision.message)
                self.surroundings.held.add(decision.message.idempotency_key)
            case Ask() | Confirm():
                self.asks.append(decision.message)
            case View():
                self.records.append(decision.record)
            case DuplicateLine():
                self.lines.append(decision.record)
            case Barrier():
                self.barriers.append(decision.message)
                self.core.passed(decision.message, self.core.folded)
            case Answered():
                self.answers.append(decision.message)
            case PolicyTaken():
                self.policy_answers.append(decision.message)
            case RulesTaken():
                self.rules_answers.append(decision.message)

    def add(self, *events: Event) -> None:
        for event in events:
            self.surroundings.log.append(event)
            self.surroundings.ids.append("")
        self.settle()

    def says(self, *events: Event) -> None:
        """What bodies say, each call with their word; all of it is read before anything is decided."""
        for event in events:
            self.surroundings.log.append(worded(self.job, event))
            self.surroundings.ids.append("")
            self._fold()
        self.settle()

    def activate(self, number: int, policy: str) -> None:
        """Somebody lets another policy decide."""
        self.policies.take(_activation(number, policy))
        self.core.policy_activated(self.surroundings.now())
        self.settle()

    def order(self, order: FreezeOrder) -> None:
        """The next record of the topic of freezes; where it counts, this partition has not answered it."""
        self.surroundings.orders.append(order)
        if self.freezes.take(order):
            self.core.ordered(order, self.surroundings.now())
        self.settle()

    def request(self, *nodes: str, offset: int = 0, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "job_id": JOB,
            "birth": 0,
            "as_of": len(self.surroundings.log) - 1,
            "revision": 0,
            "plan_hash": digest(self.surroundings.plan),
            "nodes": nodes,
        }
        self.core.request(ToolRequest(**(fields | changes)), offset)
        self.settle()

    def sleep(self, seconds: float) -> None:
        """Let time pass, with a round at every due time on the way."""
        end_s = self.surroundings.now_s + seconds
        for _ in range(1000):
            due_s = self.core.next_due()
            if due_s is None or due_s > end_s:
                break
            self.surroundings.now_s = max(self.surroundings.now_s, due_s)
            self.settle()
        self.surroundings.now_s = end_s
        self.settle()

    def lease_lapses(self) -> None:
        self.surroundings.held.clear()
        self.sleep(TTL_S + 0.1)

    def answer(self, text: str, **fields: Any) -> None:
        asked = self.asks[-1]
        probed = ev.InvocationProbed(
            job_id=JOB,
            node_id=asked.node_id,
            idempotency_key=asked.idempotency_key,
            invocation_id=asked.invocation_id,
            external_key=asked.external_key,
            ask=asked.ask,
            answer=Answer(text),
            **fields,
        )
        self.add(probed)

    def resolve(self, verdict: str, node: str = "a", **fields: Any) -> None:
        command = Resolve.model_validate(
            {
                "job_id": JOB,
                **said_by(fields.get("by", "bob")),
                "tenant": TENANT,
                "execution_id": execution_id(JOB, node, key_of(node)),
                "verdict": verdict,
                "evidence": "seen in the bank's books",
                "as_of": self.job.last_offset,
            }
            | fields
        )
        self.core.hear(command, "cmd-1", 7)
        self.settle()

    @property
    def job(self) -> JobState:
        return self.core.jobs[JOB].state

    def state(self, node: str = "a") -> KeyState:
        return self.job.keys[key_of(node)]

    def written(self) -> list[str]:
        """The types of what this world's ledgers wrote."""
        return [
            event.event_type for event, id_ in zip(self.surroundings.log, self.surroundings.ids, strict=True) if id_
        ]


class Behind(Ledger):
    """Its next words land behind what others append `meanwhile`."""

    meanwhile: Sequence[Event] = ()

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Emit) and self.meanwhile:
            self.surroundings.log += self.meanwhile
            self.surroundings.ids += ["" for _ in self.meanwhile]
            self.meanwhile = ()
        super()._carry_out(decision)


def effect(node: str, invocation_id: str, result: Any, *, change: bool = True) -> bytes:
    """What an executor leaves in the effect store."""
    done = finished(node, invocation_id, result=result)
    committed = ev.CommandCommitted(
        job_id=JOB,
        node_id=node,
        command_id=node,
        idempotency_key=done.idempotency_key,
        kind=started(node, invocation_id).kind,
        input_hash=started(node, invocation_id).args_hash,
        output_hash=digest(result),
    )
    parts = [f'"finished":{done.model_dump_json()}', f'"committed":{committed.model_dump_json()}']
    if change:
        changed = ev.StateChanged(
            job_id=JOB,
            node_id=node,
            changes=(Change(resource_type="refund", resource_id="r-1", operation="create"),),
        )
        parts.append(f'"changed":{changed.model_dump_json()}')
    return ("{" + ",".join(parts) + "}").encode()


BY_LOCK = Ended(incarnation="i1", how="lock")


def worker_ended(incarnation: str = "i1") -> WorkerLife:
    return ("w", incarnation)


def reported(node: str, invocation_id: str, *, returned: bool = True) -> Event:
    """The try's own word: it has failed, and how is not known."""
    return about(
        ev.InvocationInDoubt, node, invocation_id=invocation_id, error_class="ConnectionResetError", returned=returned
    )


def probing(surroundings: Surroundings) -> Ledger:
    """A probeable try in doubt whose worker's end is recorded, first question sent."""
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    surroundings.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.settle()
    return ledger


def answered(asked: Verification, text: str) -> dict[str, Any]:
    return {
        "invocation_id": asked.invocation_id,
        "external_key": asked.external_key,
        "ask": asked.ask,
        "answer": Answer(text),
    }


def _activation(number: int, policy: str) -> PolicyActivation:
    policy_hash = hashlib.sha256(policy.encode()).hexdigest()
    return PolicyActivation(number=number, policy=policy, policy_hash=policy_hash, by="olga", at="")
