"""Histories of goals' jobs: the body runs in this process, and its calls are planned and made as it says."""

from collections.abc import Iterable
from typing import Any

from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, PlanEntry, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.protocol.plan.graph import EffectClass, EffectKind
from aetheris.protocol.plan.prompts import Brief, Limits
from aetheris.protocol.planning.goals import GOAL_ENTRY, AnsweredCall, GoalArgs, GoalBody, GoalCall, goal_graph
from aetheris.protocol.planning.invocation import invocation
from aetheris.protocol.planning.schemas import graph_json, pin_of
from tests.testkit import body_histories as b
from tests.testkit import histories as h

GOAL = "settle the invoices"
TOOLS = {"act": EffectClass.IDEMPOTENT, "pay": EffectClass.OPAQUE, "look": EffectClass.PURE}
REGISTRY = {
    name: RegistryEntry(
        name=name,
        version="1",
        schema={"type": "object"},
        schema_hash="s",
        effect_class=kind,
        irreversible=name == "pay",
    )
    for name, kind in TOOLS.items()
}
PINS = {name: pin_of(entry) for name, entry in REGISTRY.items()}


def brief(**more: Any) -> Brief:
    return Brief(model="fast", tools=tuple(TOOLS), limits=Limits(turns=3), **more)


def answer(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    return {"model": "fast", "text": text, "calls": [{"tool": tool, "args": args} for tool, args in calls]}


def plan_of(made: Brief) -> dict[str, Any]:
    return graph_json(goal_graph(GOAL, made, PINS, pin_of(GOAL_ENTRY)))


UNREAD = (ev.DecisionSnapshot, ev.CommandCommitted)


class Course:
    """A goal's job, event by event; its body runs in this process."""

    def __init__(self, created: ev.JobCreated, plan: dict[str, Any]) -> None:
        self.events: list[ev.Event] = [b.with_bodies(plan)]
        self.born = created
        node = self.entry("goal").node
        self.body = GoalBody(GoalArgs.model_validate(node.args), PINS)
        made = invocation(self.job, self.entry("goal")).args
        start = h.started("goal", "body", args=made, tool="goal")
        self.events.append(start.model_copy(update={"plans": b.words("body").plans}))
        self._plan(self.body.begin())

    @property
    def job(self) -> JobState:
        return self._folded()[0]

    @property
    def logged(self) -> list[ev.Event]:
        """Its events, each with its word."""
        return self._folded()[1]

    def _folded(self) -> tuple[JobState, list[ev.Event]]:
        job, logged = h.fold_of(self.born), list[ev.Event]([self.born])
        for offset, event in enumerate(self.events, start=1):
            worded = b.worded(job, event)
            assert apply(job, worded, offset) or isinstance(worded, UNREAD), event
            logged.append(worded)
        return job, logged

    def entry(self, node: str) -> PlanEntry:
        entry = self.job.entry(node)
        assert entry is not None
        return entry

    def _plan(self, calls: Iterable[GoalCall]) -> list[str]:
        nodes = [call.node for call in calls]
        for node in nodes:
            entry = PlanEntry(0, node, PINS.get(node.tool or ""))
            made = invocation(self.job, entry).args if node.references else None
            said = node.model_dump(mode="json", exclude_defaults=True)
            more = {name: said[name] for name in said.keys() - {"id", "tool", "args"}}
            planned = b.call("body", node.args, node.tool, node=node.id, parent="goal", made=made, **more)
            self.events.append(planned)
        return [node.id for node in nodes]

    def asked(self, turn: int, *calls: tuple[str, dict[str, Any]], text: str = "") -> list[str]:
        """The model has answered question number `turn`: the calls that are made upon that."""
        return self.answered(turn, answer(*calls, text=text))

    def answered(self, turn: int, result: dict[str, Any]) -> list[str]:
        return self.done(f"goal.turn-{turn}", result)

    def done(self, node: str, result: Any) -> list[str]:
        made = invocation(self.job, self.entry(node))
        about: dict[str, Any] = {"args": made.args, "tool": made.entry.node.tool_name}
        start = self._started(node, about)
        self.events += [start, h.finished(node, f"n-{node}", result=result, **about)]
        return self._plan(self.body.told(AnsweredCall(node, Settled.SUCCESS, result=result)))

    def failed(self, node: str, via: str = "executor") -> list[str]:
        made = invocation(self.job, self.entry(node))
        about: dict[str, Any] = {"args": made.args, "tool": made.entry.node.tool_name}
        end = h.finished(node, f"n-{node}", "permanent_failure", via=via, **about)
        self.events += [self._started(node, about), end.model_copy(update={"error": "no such order"})]
        sure = via == "executor"
        return self._plan(self.body.told(AnsweredCall(node, Settled.FAILED, sure=sure, reason="no such order")))

    def _started(self, node: str, about: dict[str, Any]) -> ev.ToolInvocationStarted:
        start = h.started(node, f"n-{node}", **about)
        if about["tool"] == "pay":
            body: dict[str, Any] = {"args_hash": start.args_hash, "tool_version": "1", "rule": "r"}
            self.events.append(h.about(ev.PolicyAllowed, node, **about, **body))
        kind = EffectKind.LLM if about["tool"] == "llm" else EffectKind.TOOL
        return start.model_copy(update={"parent_invocation": b.try_of("body"), "kind": kind})
