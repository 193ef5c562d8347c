"""Which faults strike, in what order and how hard, and which jobs they meet (pure): one seed, one schedule."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from aetheris.protocol.plan.graph import EffectClass
from aetheris.rigs.chaos.tools import REFUSES, TOOLS

EXECUTORS = 2
SERVICES = ("planner-0", "ledger-0", "executor-0", "executor-1", "prober-0", "verifier-0", "gateway-0")
PAUSABLE = (
    *("executor-0", "executor-1", "executor-0", "executor-1"),
    *("planner-0", "ledger-0", "prober-0", "verifier-0"),
)

OUTSIDE, KAFKA, REDIS = "outside", "kafka", "redis"
ROUTES = (OUTSIDE, KAFKA, REDIS)
"""What the services' connections lead to, each through a forwarder."""

MIX = 12
LARGE = 100_000
"""Bytes of a result that goes into the store of blobs."""

PARTITIONS = 4
LEASE_TTL_S = 2.0
SESSION_S = 3.0
LATEST_S = 3.0
"""How long requests stay on the wire at most: shorter than any call's timeout, and than what the tools say of it."""

SHORTEST_PAUSE_S = SESSION_S + LEASE_TTL_S
"""A process that sleeps for longer has lost its leases and its partitions when it wakes."""


_RETRY = {"max_attempts": 100, "backoff_s": 0.1, "max_backoff_s": 2.0}


class FaultKind(StrEnum):
    """What is done to the system."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP, SIGCONT past the lease"
    FLUSH = "FLUSHALL"
    LOSE_TAIL = "Redis kill -9 with lost tail"
    KILL_BROKER = "broker kill -9"
    ADD = "executor added"
    REMOVE = "executor removed"
    SLOW = "slow connections"
    RESET = "reset connections"
    ON_THE_WIRE = "kill -9, requests on the wire"
    FULL_DISK = "full disk of the broker"
    WRONG_CLOCK = "wrong clock"
    BORN_WRONG = "kill -9, started with a wrong clock"
    KILL_LEADER = "leader kill -9"
    STOP_LEADER = "leader SIGSTOP, SIGCONT when others lead"
    KILL_CONTROLLER = "controller kill -9"
    STOP_CONTROLLER = "controller SIGSTOP, SIGCONT when another is in charge"
    ROLLING = "brokers restarted one after the other"


AMONG_BROKERS = (
    FaultKind.KILL_LEADER,
    FaultKind.STOP_LEADER,
    FaultKind.KILL_CONTROLLER,
    FaultKind.STOP_CONTROLLER,
    FaultKind.ROLLING,
)
"""Where there are several brokers."""

WEIGHTS: Mapping[FaultKind, int] = {
    FaultKind.KILL: 25,
    FaultKind.PAUSE: 14,
    FaultKind.FLUSH: 7,
    FaultKind.LOSE_TAIL: 7,
    FaultKind.KILL_BROKER: 5,
    FaultKind.ADD: 5,
    FaultKind.REMOVE: 5,
    FaultKind.SLOW: 8,
    FaultKind.RESET: 9,
    FaultKind.ON_THE_WIRE: 6,
    FaultKind.FULL_DISK: 1,
    FaultKind.WRONG_CLOCK: 4,
    FaultKind.BORN_WRONG: 4,
}
"""Of a hundred."""

BROKER_WEIGHTS: Mapping[FaultKind, int] = {
    FaultKind.KILL_LEADER: 8,
    FaultKind.STOP_LEADER: 12,
    FaultKind.KILL_CONTROLLER: 5,
    FaultKind.STOP_CONTROLLER: 8,
    FaultKind.ROLLING: 2,
}
"""Beside those, where there are several brokers."""

BROKER_SESSION_S = 4.0
"""A broker that is silent for longer leads nothing any more."""

ONCE = (
    *((kind, route) for kind in (FaultKind.SLOW, FaultKind.RESET) for route in ROUTES),
    *((kind, None) for kind in FaultKind if kind not in (FaultKind.SLOW, FaultKind.RESET, *AMONG_BROKERS)),
)
"""Each kind comes once, and bad connections once on each route, before any comes twice."""


@dataclass(frozen=True)
class ScheduledFault:
    """One fault: after so many further effects (or a while without any), on that target, for so long.

    `amount`: SLOW seconds an answer is late; ON_THE_WIRE
    seconds that a request is under way; LOSE_TAIL share of the log that is lost; of wrong clocks seconds off.
    """

    number: int
    kind: FaultKind
    target: str = ""
    after_effects: int = 0
    lasts_s: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True)
class Struck:
    """A fault as it was carried out: on whom, from when to when (monotonic seconds); `left_out` says why it wasn't."""

    fault: ScheduledFault
    target: str
    begun_s: float
    ended_s: float | None = None
    left_out: str | None = None


@dataclass(frozen=True)
class JobPlan:
    """A job of four steps, one of each effect class; its steps' tags count calls outside.

    `signal` is the key that a node of it waits for; `cancelled`: somebody calls it off as it runs; `undone`: what it
    did is, because it was cancelled so, or because its last step fails. With a `goal` a model plans it, and `plan` is
    what comes of that, for where there is no model.
    """

    number: int
    plan: Mapping[str, Any]
    signal: str | None = None
    cancelled: bool = False
    undone: bool = False
    goal: str | None = None

    @property
    def idempotency_key(self) -> str:
        """With it, a submission may be repeated."""
        return f"chaos-{self.number}"


def faults(seed: int, count: int, jobs: int, brokers: int = 1) -> tuple[ScheduledFault, ...]:
    """The faults, in their order."""
    rng = Random(f"faults {seed}")  # noqa: S311 - reproducible, not secret
    once = list(ONCE)
    weights = {**WEIGHTS, **(BROKER_WEIGHTS if brokers > 1 else {})}
    once += [(kind, None) for kind in AMONG_BROKERS if kind in weights]
    rng.shuffle(once)
    more = rng.choices(list(weights), [*weights.values()], k=max(0, count - len(once)))
    wanted = [*once, *((kind, None) for kind in more)][:count]
    most = max(1, 3 * jobs // max(1, count))
    found = [_fault(rng, number, kind, route, most) for number, (kind, route) in enumerate(wanted)]
    return tuple(_among(rng, fault, brokers) for fault in found)


def job_plans(seed: int, count: int) -> tuple[JobPlan, ...]:
    """The jobs: chains and parallel steps in turn, the classes in every order."""
    rng = Random(f"jobs {seed}")  # noqa: S311 - reproducible, not secret
    return tuple(_mixed(number, list(_nodes(rng, number))) for number in range(count))


def _mixed(number: int, nodes: list[dict[str, Any]]) -> JobPlan:
    """Of twelve: two with large results; one each that waits for a time, a signal, a human, that is cancelled, that is
    cancelled and undone, that fails and is undone; two that a model plans.
    """
    first = next(node for node in nodes if not node["depends_on"])
    plan = {"nodes": nodes}
    match number % MIX:
        case 1 | 4:
            for node in nodes:
                node["args"]["pad"] = LARGE
        case 2:
            nodes.append({"id": "pause", "kind": "timer", "wait": {"for_s": 1.5}})
            first["depends_on"] = ["pause"]
        case 3:
            key = f"go-{number}"
            nodes.append({"id": "go", "kind": "wait", "wait": {"key": key}})
            first["depends_on"] = ["go"]
            return JobPlan(number, plan, signal=key)
        case 5:
            next(node for node in nodes if node["tool"] == TOOLS[EffectClass.PROBEABLE])["args"]["ask"] = True
        case 7:
            return JobPlan(number, plan, cancelled=True)
        case 8 | 11:
            return JobPlan(number, plan, goal=_script(nodes))
        case 9:
            _let_undo(nodes)
            return JobPlan(number, plan, cancelled=True, undone=True)
        case 10:
            _let_undo(nodes)
            needed = [node["id"] for node in nodes]
            nodes.append({"id": REFUSES, "tool": REFUSES, "args": {"tag": f"{number}/none"}, "depends_on": needed})
            return JobPlan(number, plan, undone=True)
        case _:
            pass
    return JobPlan(number, plan)


def _let_undo(nodes: list[dict[str, Any]]) -> None:
    """Each step that has an effect is undone by a call of another class: one that nobody can ask about, too."""
    effectful = [node for node in nodes if node["id"] != EffectClass.PURE]
    for node, other in zip(effectful, (*effectful[1:], effectful[0]), strict=True):
        undo = {"tag": undo_tag(node["args"]["tag"]), "delay_s": node["args"]["delay_s"]}
        node["compensate_with"] = {"tool": other["tool"], "args": undo, "retry": _RETRY}


def _script(nodes: list[dict[str, Any]]) -> str:
    """The goal that lets the model make the same calls: two at once, then one after the other."""
    calls = [{"tool": node["tool"], "args": node["args"]} for node in nodes]
    return json.dumps([calls[:2], *([call] for call in calls[2:])])


def undo_tag(step: str) -> str:
    """What the call that undoes a step is counted by."""
    return f"{step}/undo"


def tag(job: int, effect_class: EffectClass) -> str:
    """What a step's calls are counted by."""
    return f"{job}/{effect_class.value}"


def _fault(rng: Random, number: int, kind: FaultKind, route: str | None, most_effects: int) -> ScheduledFault:
    after = rng.randint(0, most_effects)
    match kind:
        case FaultKind.KILL:
            return ScheduledFault(number, kind, rng.choice(SERVICES), after)
        case FaultKind.PAUSE:
            return ScheduledFault(number, kind, rng.choice(PAUSABLE), after, SHORTEST_PAUSE_S * rng.uniform(1.1, 1.8))
        case FaultKind.LOSE_TAIL:
            return ScheduledFault(number, kind, "", after, amount=rng.uniform(0.05, 0.5))
        case FaultKind.SLOW:
            target = route or rng.choice(ROUTES)
            late_s = rng.uniform(0.2, 6.0) if target == OUTSIDE else rng.uniform(0.02, 1.0)
            return ScheduledFault(number, kind, target, after, rng.uniform(1.0, 3.0), late_s)
        case FaultKind.RESET:
            return ScheduledFault(number, kind, route or rng.choice(ROUTES), after, rng.uniform(0.1, 1.0))
        case FaultKind.ON_THE_WIRE:
            victim = f"executor-{rng.randrange(EXECUTORS)}"
            return ScheduledFault(number, kind, victim, after, rng.uniform(0.5, 2.0), rng.uniform(1.0, LATEST_S))
        case FaultKind.FULL_DISK:
            return ScheduledFault(number, kind, "kafka", after, rng.uniform(1.0, 3.0))
        case FaultKind.WRONG_CLOCK | FaultKind.BORN_WRONG:
            off_s = rng.choice((-1, 1)) * rng.choice((90, 3_600, 86_400, 30 * 86_400))
            return ScheduledFault(number, kind, rng.choice(SERVICES), after, rng.uniform(2.0, 6.0), off_s)
        case _:
            return ScheduledFault(number, kind, "", after)


def _among(rng: Random, fault: ScheduledFault, brokers: int) -> ScheduledFault:
    """Which of several brokers a fault meets: by name, or by the partition that it leads."""
    if brokers == 1:
        return fault
    match fault.kind:
        case FaultKind.KILL_BROKER:
            return replace(fault, target=f"{KAFKA}-{rng.randint(1, brokers)}")
        case FaultKind.KILL_LEADER | FaultKind.STOP_LEADER:
            lasts_s = BROKER_SESSION_S * rng.uniform(1.2, 2.5)
            return replace(fault, target=str(rng.randrange(PARTITIONS)), lasts_s=lasts_s)
        case FaultKind.STOP_CONTROLLER:
            return replace(fault, lasts_s=BROKER_SESSION_S * rng.uniform(1.2, 2.5))
        case _:
            return fault


def _nodes(rng: Random, number: int) -> Iterator[dict[str, Any]]:
    order = list(EffectClass)
    rng.shuffle(order)
    for place, effect_class in enumerate(order):
        yield {
            "id": effect_class.value,
            "tool": TOOLS[effect_class],
            "args": {"tag": tag(number, effect_class), "delay_s": round(rng.uniform(0, 0.6), 3)},
            "depends_on": [order[place - 1].value] if number % 2 and place else [],
            "retry": _RETRY,
        }
