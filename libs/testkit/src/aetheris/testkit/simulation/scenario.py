"""What a seed's jobs look like: tools of every class, chains that make runs, the ledger's policy and limits."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from aetheris.ledger.core.limits import LedgerLimits, QuarantineLimits
from aetheris.protocol.fold.state import PlanEntry
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.plan.graph import Confirmation, DuplicateScope, JobOptions, TaskGraph, ToolPin
from aetheris.protocol.plan.prompts import Brief
from aetheris.protocol.plan.prompts import Limits as AgentLimits
from aetheris.protocol.planning.goals import GOAL_ENTRY, goal_graph
from aetheris.protocol.planning.policy import Policy, parse
from aetheris.protocol.planning.schemas import graph_json, pin_of
from aetheris.testkit.simulation.external_system import SETTLES_S
from aetheris.testkit.simulation.flows import FLOW, code, draw_script, flows
from aetheris.testkit.simulation.tape import Tape

TENANT = "acme"
TTL_S = 5.0
LEAST_FAULTS = 5
MOST_FAULTS = 12

STATED = frozenset({"pay"})
"""Tools that say how long their requests may be under way; it is the others' timeout."""

TOOLS: dict[str, dict[str, Any]] = {
    name: {
        "version": "1",
        "schema_hash": "s",
        "effect_class": effect_class,
        "irreversible": irreversible,
        "timeout_s": SETTLES_S,
        **({"settles_within_s": SETTLES_S} if name in STATED else {}),
    }
    for name, effect_class, irreversible in (
        ("put", "idempotent", False),
        ("mail", "opaque", False),
        ("book", "probeable", False),
        ("read", "pure", False),
        ("wipe", "opaque", True),
        ("pay", "probeable", True),
        ("close", "idempotent", True),
    )
}
"""Pinned as they would be registered."""

CONFIRMED = frozenset({"put", "book", "pay"})
"""Tools whose effects can be compared with the external system."""

_ARGS = {"type": "object", "properties": {"for": {"type": "string"}}}

SCOPES: tuple[DuplicateScope, ...] = ("job", "session", "tenant")


def _pins(scope: DuplicateScope) -> dict[str, dict[str, Any]]:
    return {name: {**pin, "duplicate_scope": scope} if pin["irreversible"] else pin for name, pin in TOOLS.items()}


_PINS = {scope: _pins(scope) for scope in SCOPES}
_REGISTRY = {
    scope: {
        name: RegistryEntry.model_validate({"name": name, "schema": _ARGS, "verifier": name in CONFIRMED, **pin})
        for name, pin in pins.items()
    }
    for scope, pins in _PINS.items()
}

FLOW_PIN: dict[str, Any] = {"version": "1", "schema_hash": "s", "effect_class": "pure"}
_FLOW = RegistryEntry.model_validate(
    {"name": FLOW, "schema": _ARGS, "kind": "workflow", "calls": tuple(TOOLS), "code_hash": "0" * 64, **FLOW_PIN}
)
_WORKFLOWS = {FLOW: _FLOW, GOAL_ENTRY.name: GOAL_ENTRY}
FLOWS = flows(tuple(TOOLS))
"""The workflows' code, by its edit."""
CODES = {edit: code(edit) for edit in FLOWS}

REVERSIBLE = ("put", "mail", "book", "read")
NAMES = ("a", "b", "c", "d")
WAITS = "w"
WORKFLOW = "f"
SIGNAL = "go"
WAITING: tuple[dict[str, Any], ...] = (
    {"kind": "wait", "wait": {"key": SIGNAL}},
    {"kind": "wait", "wait": {"key": SIGNAL, "timeout_s": 20}},
    {"kind": "timer", "wait": {"for_s": 15}},
    {"kind": "human", "form": {"title": "Which way?"}},
    {"kind": "human", "form": {"title": "Which way?"}, "wait": {"timeout_s": 20}},
)
CONFIRMATIONS: tuple[Confirmation | None, ...] = (None, "strict", "warn", "human_in_loop")
_LONG_S = 5000.0
_RARE = QuarantineLimits(after=3, jobs=2, first_s=1.0, longest_s=4.0)
QUARANTINES = (
    _RARE,
    _RARE,
    _RARE,
    QuarantineLimits(after=1, jobs=1, first_s=1.0, longest_s=4.0),
    QuarantineLimits(after=1, jobs=1, first_s=_LONG_S, longest_s=_LONG_S),
    QuarantineLimits(after=2, jobs=1, first_s=_LONG_S, longest_s=_LONG_S),
)
"""Of the last two only a person makes an end, or a call that began before: a run does not last so long."""

GOAL = "whatever it takes"
MOST_TURNS = 4
BRIEF = Brief(model="m", tools=tuple(TOOLS), limits=AgentLimits(turns=MOST_TURNS, calls=6))

POLICY_TEXTS = (
    '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"',
    '[[rules]]\nname = "ask"\ntools = ["*"]\nirreversible = true\neffect = "approval"\n'
    '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"',
    '[[rules]]\nname = "ask"\ntools = ["*"]\nirreversible = true\neffect = "approval"\nexpires_s = 40\n'
    "approvals = 2\n"
    '[[rules]]\nname = "few"\ntools = ["mail"]\neffect = "allow"\nbudget = {calls = 1}\n'
    '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"',
    '[[rules]]\nname = "never"\ntools = ["wipe"]\neffect = "deny"\n'
    '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"',
)

POLICIES: tuple[Policy, ...] = tuple(map(parse, POLICY_TEXTS))
_ASK_FIRST = '[[rules]]\nname = "book"\ntools = ["book"]\neffect = "approval"\n'
ASKING = {parse(text).hash: parse(_ASK_FIRST + text) for text in POLICY_TEXTS}
"""By the hash of another policy: the same, but that a human is asked about what can be undone, too."""

ACTIVATED_TEXTS = (
    *POLICY_TEXTS,
    *(
        f'[[rules]]\nname = "no"\ntools = {tools}\neffect = "deny"\n'
        '[[rules]]\nname = "rest"\ntools = ["*"]\neffect = "allow"'
        for tools in (["mail", "pay"], ["book", "close"], ["put", "read"])
    ),
)
"""What is activated: also what denies the later steps of a run that was granted before."""


class Lasting(Enum):
    """What is not mended."""

    CALLS_LOST = auto()
    """No request of a tool reaches the external system any more."""
    NOBODY_KNOWS = auto()
    """Every question to the external system is answered with "unknown"."""
    NOBODY_ANSWERS = auto()
    """No question whether a call took effect is answered."""
    NOBODY_DECIDES = auto()
    """No request of a human is answered."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked for, and under which terms."""

    partitions: int

    submissions: tuple[Submit, ...]
    policy: Policy
    limits: LedgerLimits
    humans_resolve: bool
    """Whether a human answers for parked calls in the end."""
    faults: int
    lasting: Lasting | None
    """What goes wrong for ever, behind the other faults, too."""
    scope: DuplicateScope
    """Where an irreversible call that means the same counts as one."""

    @property
    def needs_release(self) -> bool:
        """Whether a tool in quarantine is not tried again by itself while a run lasts."""
        return self.limits.quarantine.first_s >= _LONG_S

    @property
    def reach(self) -> int:
        """How far behind what its writer had read a birth counts: some come too late, and much lies further on."""
        return 3 if self.faults % 2 else 60

    @property
    def freezes(self) -> bool:
        """Whether people freeze something: in the seeds with the most faults."""
        return self.faults == MOST_FAULTS

    @property
    def called(self) -> tuple[str, ...]:
        """The tools that the plans name."""
        plans = (one.plan for one in self.submissions if one.plan is not None)
        return tuple(dict.fromkeys(tool for plan in plans for tool in plan["tools"] if tool not in _WORKFLOWS))

    def registered(self, name: str, version: str) -> RegistryEntry | None:
        """The registry's entry of a tool."""
        entry = _WORKFLOWS.get(name) or _REGISTRY[self.scope].get(name)
        return entry if entry is not None and entry.version == version else None

    def number_of(self, job_id: str) -> int:
        """The partition of a job."""
        return int(job_id.rpartition("-")[2]) % self.partitions


def draw_scenario(tape: Tape) -> Scenario:
    """Two jobs of three or four steps, five faults or more; in the first job, the steps make a run, in the others some
    may wait: for a signal, a time, or a human's answer to a form.

    In one of three seeds there is a job that a model plans, too.
    """
    jobs = 1 + tape.below(2, least=1)
    scope = tape.pick(("job", "job", *SCOPES))
    submissions = tuple(_submission(tape, f"job-{number}", scope, chained=number == 0) for number in range(jobs))
    policy, limits = tape.pick(POLICIES), _limits(tape)
    humans_resolve, faults = not tape.chance(0.3), tape.below(MOST_FAULTS + 1, LEAST_FAULTS)
    goals = (_goal(f"job-{jobs}", scope),) if tape.chance(0.33) else ()
    lasting = tape.pick((None, None, None, None, None, None, *Lasting))
    partitions = tape.pick((1, 1, 2))
    return Scenario(partitions, (*submissions, *goals), policy, limits, humans_resolve, faults, lasting, scope)


def draw_flows(tape: Tape) -> Scenario:
    """The same, but that each job is a workflow, now and then behind a step, or before one."""
    drawn = draw_scenario(tape)
    submissions = tuple(_flow(tape, f"job-{number}", drawn.scope) for number in range(1 + tape.below(2)))
    return replace(drawn, submissions=submissions)


def _flow(tape: Tape, job_id: str, scope: DuplicateScope) -> Submit:
    flow: dict[str, Any] = {"id": WORKFLOW, "kind": "workflow", "tool": FLOW}
    flow["args"] = {"script": draw_script(tape, tuple(TOOLS), f"{job_id[-1]}s")}
    nodes = [flow]
    if tape.chance(0.2):
        nodes.insert(0, _node(tape, "a", tape.pick(tuple(TOOLS)), None, alike=0))
        flow["depends_on"] = ["a"]
    if tape.chance(0.2):
        nodes.append({"id": "b", "kind": "tool", "tool": "put", "args": {"for": "b"}, "depends_on": [WORKFLOW]})
    plan = {"tools": {**_PINS[scope], FLOW: FLOW_PIN}, "nodes": nodes}
    return _submit(job_id, plan, options=JobOptions(confirmation=tape.pick(CONFIRMATIONS)))


def draw_answer(tape: Tape) -> dict[str, Any]:
    """What the model says this time: one or two calls, or, now and then, that it is done; it never repeats itself."""
    if tape.chance(0.2):
        return {"model": BRIEF.model, "text": "done"}
    calls = [
        {"tool": tape.pick(tuple(TOOLS)), "args": {"for": "x" if tape.chance(0.2) else f"call {place}"}}
        for place in range(1 + tape.below(2))
    ]
    return {"model": BRIEF.model, "calls": calls}


def _goal(job_id: str, scope: DuplicateScope) -> Submit:
    pins = {name: ToolPin.model_validate(pin) for name, pin in _PINS[scope].items()}
    plan = graph_json(goal_graph(GOAL, BRIEF, pins, pin_of(GOAL_ENTRY)))
    return _submit(job_id, plan, goal=GOAL, brief=BRIEF)


def _submit(job_id: str, plan: dict[str, Any], **more: Any) -> Submit:
    return Submit(job_id=job_id, by="ann", tenant=TENANT, session="s", request_hash=f"r-{job_id}", plan=plan, **more)


def _limits(tape: Tape) -> LedgerLimits:
    return LedgerLimits(
        lease_ttl_s=TTL_S,
        end_wait_s=2 * TTL_S,
        probe_wait_s=6.0,
        probe_backoff_s=1.0,
        probe_tries=3,
        max_tries=tape.pick((6, 3)),
        on_in_doubt=tape.pick(("park", "park", "park", "fail")),
        runs=True,
        quarantine=tape.pick(QUARANTINES),
    )


def _submission(tape: Tape, job_id: str, scope: DuplicateScope, *, chained: bool) -> Submit:
    steps = 1 + tape.below(4, least=2)
    nodes: list[dict[str, Any]] = []
    for place, name in enumerate(NAMES[:steps]):
        in_run = chained and place > 0
        tool = tape.pick(REVERSIBLE if in_run else tuple(TOOLS))
        before = NAMES[place - 1] if place and (chained or tape.chance(0.6)) else None
        nodes.append(_node(tape, name, tool, before, alike=0.2 if scope == "job" else 0.6))
    called = [call["tool"] for node in nodes for call in (node, node.get("compensate_with")) if call is not None]
    if not chained and tape.chance(0.5):
        _let_wait(tape, nodes)
    plan = {"tools": {tool: _PINS[scope][tool] for tool in called}, "nodes": nodes}
    options = JobOptions(confirmation=tape.pick(CONFIRMATIONS))
    return _submit(job_id, plan, options=options)


def _let_wait(tape: Tape, nodes: list[dict[str, Any]]) -> None:
    """A node that waits, between two steps."""
    wait = {"id": WAITS, "depends_on": [nodes[0]["id"]], **tape.pick(WAITING)}
    nodes[-1]["depends_on"] = [*dict.fromkeys([*nodes[-1].get("depends_on", ()), WAITS])]
    nodes.insert(1, wait)


def _node(tape: Tape, name: str, tool: str, before: str | None, *, alike: float) -> dict[str, Any]:
    """Two nodes of one tool are now and then the very same call; so likely is `alike`."""
    args: dict[str, Any] = {"for": "x" if tape.chance(alike) else name}
    node: dict[str, Any] = {"id": name, "kind": "tool", "tool": tool, "args": args}
    if before is not None:
        node["depends_on"] = [before]
        if tape.chance(0.4):
            args["from"] = {"$ref": f"{before}#/v"}
    if tape.chance(0.2):
        node["retry"] = {"max_attempts": 1 + tape.below(3), "backoff_s": 1}
    if tape.chance(0.5):
        node["compensate_with"] = {"tool": tape.pick(tuple(TOOLS)), "args": {"undo": {"$ref": f"{name}#/v"}}}
    return node


def revised(entry: PlanEntry) -> dict[str, Any]:
    """A diff that gives a node other arguments."""
    changed = entry.node.model_copy(update={"args": entry.node.args | {"note": "revised"}})
    return {"tools": {}, "nodes": graph_json(TaskGraph(nodes=(changed,)))["nodes"]}
