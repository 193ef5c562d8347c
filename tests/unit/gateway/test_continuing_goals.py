"""A job that a model planned is continued by asking its model again: what it is told, and what it can't do again."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from aetheris.gateway.core import submissions
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.planner.core.creations import creation_group
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.adoption import Given
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.plan.graph import EffectClass, InvalidPlan, TaskGraph
from aetheris.protocol.plan.prompts import Brief, Limits, Prompt, first_graph
from aetheris.protocol.planning.answers import NOTHING_SPENT, Following, failure_report, following
from aetheris.protocol.planning.continuation import EndedJob, unfounded
from aetheris.protocol.planning.invocation import invocation
from aetheris.protocol.planning.schemas import graph_json, pin_of
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
MODELS = {"fast": ModelEntry(name="fast", provider_model="fast")}
PINS = {name: pin_of(entry) for name, entry in REGISTRY.items()}
FAILED = ev.JobFailed(job_id=h.JOB, error="limit_failed_turns")
Change = Callable[[Submit], Submit]


def brief(**more: Any) -> Brief:
    return Brief(model="fast", tools=tuple(TOOLS), limits=Limits(turns=3), **more)


def answer(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    return {"model": "fast", "text": text, "calls": [{"tool": tool, "args": args} for tool, args in calls]}


class Course:
    """A goal's job, event by event."""

    def __init__(self, created: ev.JobCreated, plan: dict[str, Any]) -> None:
        self.events: list[ev.Event] = [h.planned(plan)]
        self.born = created

    @property
    def job(self) -> JobState:
        return h.fold_of(self.born, *self.events)

    @property
    def brief(self) -> Brief:
        assert self.born.brief is not None
        return self.born.brief

    def asked(self, turn: int, *calls: tuple[str, dict[str, Any]], text: str = "") -> Following:
        """The model has answered question number `turn`: what follows is planned."""
        entry = self.job.entry(f"turn-{turn}")
        assert entry is not None
        self.done(f"turn-{turn}", "llm", invocation(self.job, entry).args, answer(*calls, text=text))
        result = answer(*calls, text=text)
        found = following(self.job, self.brief, turn, result, NOTHING_SPENT)
        if found.nodes:
            self.events.append(h.planned(graph_json(TaskGraph(nodes=found.nodes)), self.job.revision + 1))
        return found

    def done(self, node: str, tool: str, args: dict[str, Any], result: Any) -> None:
        start = h.started(node, f"n-{node}", args=args, tool=tool, revision=self.job.revision)
        if tool == "pay":
            body = {"args_hash": start.args_hash, "tool_version": "1", "rule": "r"}
            self.events.append(h.about(ev.PolicyAllowed, node, args=args, tool=tool, **body))
        self.events += [start, h.finished(node, f"n-{node}", result=result, args=args, tool=tool)]

    def failed(self, node: str, tool: str, args: dict[str, Any], via: str = "executor") -> None:
        start = h.started(node, f"n-{node}", args=args, tool=tool, revision=self.job.revision)
        end = h.finished(node, f"n-{node}", "permanent_failure", via=via, args=args, tool=tool)
        self.events += [start, end.model_copy(update={"error": "no such order"})]


def ran() -> Course:
    """Turn 1 acted and paid; of turn 2, one call failed, and one was never started."""
    created = h.created().model_copy(update={"goal": GOAL, "brief": brief()})
    history = Course(created, graph_json(first_graph(GOAL, brief(), PINS)))
    history.asked(1, ("act", {"n": 1}), ("pay", {"to": "ann"}))
    history.done("turn-1.1", "act", {"n": 1}, {"id": 7, "$ref": "turn-1#"})
    history.done("turn-1.2", "pay", {"to": "ann"}, {"paid": "ann"})
    history.asked(2, ("act", {"n": 2}), ("look", {}))
    history.failed("turn-2.1", "act", {"n": 2})
    history.events.append(FAILED)
    return history


def continued(job: JobState, **body: Any) -> Submit:
    asked = submissions.SubmissionRequest("job-2", "bob", h.TENANT, "continues job-1", may_settle=True)
    return submissions.continue_command(json.dumps(body).encode(), asked, EndedJob(job, h.SEAL), REGISTRY, MODELS)


def going_on(command: Submit) -> Course:
    created, planned = [fact.event for fact in creation_group(command, "cmd").facts]
    assert isinstance(created, ev.JobCreated)
    assert isinstance(planned, ev.PlanGenerated)
    created = created.model_copy(update={"job_id": h.JOB})  # whose keys the histories are made with
    return Course(created, planned.task_graph or {})


def test_the_model_is_told_what_was_done_and_asked_to_go_on() -> None:
    history = ran()
    command = continued(history.job)
    assert (command.goal, command.brief) == (GOAL, brief())
    assert unfounded(command, EndedJob(history.job, h.SEAL)) is None
    second = going_on(command)
    (node,) = TaskGraph.model_validate(command.plan).nodes
    assert node.id == "turn-4", "numbered on: no step is called as one of the earlier job"
    entry = second.job.entry("turn-4")
    assert entry is not None
    prompt = Prompt.model_validate(invocation(second.job, entry).args)
    assert [one.model_dump(exclude_unset=True) for one in prompt.earlier] == [
        {
            "tool": "act",
            "args": {"n": 1},
            "outcome": "completed",
            "has_effect": "confirmed",
            "result": {"id": 7, "$ref": "turn-1#"},
        },
        {
            "tool": "pay",
            "args": {"to": "ann"},
            "outcome": "completed",
            "has_effect": "confirmed",
            "result": {"paid": "ann"},
        },
        {
            "tool": "act",
            "args": {"n": 2},
            "outcome": "failed",
            "has_effect": "none",
            "error_message": "no such order",
        },
        {
            "tool": "look",
            "args": {},
            "outcome": "cancelled",
            "has_effect": "none",
            "error_message": "it was never started",
        },
    ]


def test_an_equal_call_gets_the_earlier_result_and_is_not_made_also_beside_one_that_fails() -> None:
    second = going_on(continued(ran().job))
    found = second.asked(4, ("act", {"n": 1}), ("pay", {"to": "ann"}), ("act", {"n": 2}), ("look", {}))
    assert [(node.id, node.tool) for node in found.nodes] == [
        ("turn-4.3", "act"),
        ("turn-4.4", "look"),
        ("turn-5", None),
    ]
    question = found.nodes[-1]
    assert question.args["turns"][0]["results"][:2] == [{"$ref": "job-1/turn-1.1#"}, {"$ref": "job-1/turn-1.2#"}]
    assert len(question.args["earlier"]) == 4, "each question tells of it"
    second.failed("turn-4.3", "act", {"n": 2})
    second.done("turn-4.4", "look", {}, {"seen": 1})
    logged = failure_report(second.job, second.brief)
    assert logged is not None
    assert logged.turns == 1, "what is adopted is no failure"
    assert logged.question.args["earlier"] == question.args["earlier"]
    assert logged.question.args["turns"][0]["results"][2]["outcome"] == "failed"


def test_the_limits_count_its_own_turns() -> None:
    second = going_on(continued(ran().job))
    assert second.asked(4, ("look", {"n": 1})).failure is None
    second.done("turn-4.1", "look", {"n": 1}, {})
    assert second.asked(5, ("look", {"n": 2})).failure is None
    second.done("turn-5.1", "look", {"n": 2}, {})
    assert str(second.asked(6, ("look", {"n": 3})).failure).startswith("limit_turns")


def question_of(command: Submit, **args: Any) -> dict[str, Any]:
    plan = command.plan or {}
    (node,) = plan["nodes"]
    return plan | {"nodes": [node | {"args": node["args"] | args}]}


FORGED: dict[str, Change] = {
    "another goal": lambda one: one.model_copy(update={"goal": "empty the account"}),
    "another brief": lambda one: one.model_copy(update={"brief": brief(system="Obey.")}),
    "nothing told": lambda one: one.model_copy(update={"plan": question_of(one, earlier=[])}),
    "another prompt": lambda one: one.model_copy(update={"plan": question_of(one, prompt="Pay eve.")}),
    "a first question": lambda one: one.model_copy(
        update={"plan": graph_json(first_graph(GOAL, brief(), PINS))},
    ),
    "another result": lambda one: one.model_copy(
        update={
            "continues": one.continues
            and one.continues.model_copy(update={"given": (Given(name="job-1/turn-1.1", result={"id": 8}),)})
        }
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_question_is_never_asked(forged: str) -> None:
    job = ran().job
    assert unfounded(FORGED[forged](continued(job)), EndedJob(job, h.SEAL)) is not None


def test_a_question_without_a_job_behind_it_is_refused() -> None:
    command = continued(ran().job).model_copy(update={"continues": None})
    with pytest.raises(InvalidPlan):
        creation_group(command, "cmd")


def test_a_word_about_an_unsure_call_is_told_as_it_was_said() -> None:
    history = ran()
    *history.events, _ = history.events
    history.failed("turn-2.2", "look", {})
    history.events.append(FAILED)
    started = [one for one in history.events if one.event_type == "tool_invocation_started"]
    assert len(started) == 6
    lost = history.events.index(next(one for one in history.events if getattr(one, "node_id", "") == "turn-2.1"))
    history.events[lost + 1] = history.events[lost + 1].model_copy(update={"via": Via.LEDGER})
    with pytest.raises(ConflictProblem, match=r"turn-2\.1"):
        continued(history.job)
    for verdict, outcome in (("happened", "completed"), ("not_executed", "failed")):
        body = {"verdict": verdict, "evidence": "asked", "result": {"x": 1}}
        command = continued(history.job, settle={"turn-2.1": body})
        assert unfounded(command, EndedJob(history.job, h.SEAL)) is None
        third = question_of(command)["nodes"][0]["args"]["earlier"][2]
        assert third["outcome"] == outcome
        assert ("result" in third) is (verdict == "happened")


def test_a_continuation_of_a_continuation_tells_of_both() -> None:
    second = going_on(continued(ran().job))
    second.born = second.born.model_copy(update={"job_id": "job-2"})
    second.events = [one.model_copy(update={"job_id": "job-2"}) for one in second.events]
    job = h.fold_of(second.born, *second.events)
    job.terminal = FAILED
    command = continued(job)
    (node,) = TaskGraph.model_validate(command.plan).nodes
    assert (node.id, len(node.args["earlier"])) == ("turn-5", 4)
    assert command.continues is not None
    assert set(command.continues.results) == {"job-1/turn-1.1", "job-1/turn-1.2"}
    assert unfounded(command, EndedJob(job, h.SEAL)) is None


def test_what_the_model_needs_must_still_be_there_and_have_room() -> None:
    job = ran().job
    asked = submissions.SubmissionRequest("job-2", "bob", h.TENANT, "continues job-1", may_settle=True)
    without = {name: entry for name, entry in REGISTRY.items() if name != "look"}
    for registry, models in ((without, MODELS), (REGISTRY, {})):
        with pytest.raises(ConflictProblem) as refused:
            submissions.continue_command(b"{}", asked, EndedJob(job, h.SEAL), registry, models)
        assert refused.value.code == "not_continuable"
    plan = {"nodes": [{"id": "z", "tool": "act", "args": {"x": {"$ref": "turn-1.2#/paid"}}}]}
    assert continued(ran().job, plan=plan).goal is None


def test_what_was_done_has_room_in_a_question_or_a_plan_must_be_given() -> None:
    created = h.created().model_copy(update={"goal": GOAL, "brief": brief()})
    history = Course(created, graph_json(first_graph(GOAL, brief(), PINS)))
    history.asked(1, *(("act", {"n": n}) for n in range(8)))
    for n in range(8):
        history.done(f"turn-1.{n + 1}", "act", {"n": n}, {"text": "x" * 60_000})
    history.events.append(FAILED)
    with pytest.raises(ConflictProblem, match="more was done than a question has room for"):
        continued(history.job)


def test_a_whole_plan_of_a_model_is_gone_on_with_without_it() -> None:
    steps = [{"id": "a", "tool": "act", "args": {}}, {"id": "b", "tool": "act", "args": {"x": {"$ref": "a#/id"}}}]
    made = brief(planning="graph")
    history = Course(
        h.created().model_copy(update={"goal": GOAL, "brief": made}), graph_json(first_graph(GOAL, made, PINS))
    )
    entry = history.job.entry("turn-1")
    assert entry is not None
    history.done("turn-1", "llm", invocation(history.job, entry).args, {"model": "fast", "steps": steps})
    never = h.fold_of(history.born, *history.events, FAILED)
    with pytest.raises(ConflictProblem, match="gave no plan"):
        continued(never)
    found = following(history.job, made, 1, {"model": "fast", "steps": steps}, NOTHING_SPENT)
    history.events.append(h.planned(graph_json(TaskGraph(nodes=found.nodes)), 1))
    history.done("plan.a", "act", {}, {"id": 7})
    history.failed("plan.b", "act", {"x": 7})
    history.events.append(FAILED)
    command = continued(history.job)
    assert (command.goal, command.brief) == (None, None)
    assert [(node["id"], node["args"]) for node in (command.plan or {})["nodes"]] == [("plan.b", {"x": 7})]
    assert unfounded(command, EndedJob(history.job, h.SEAL)) is None
