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
from aetheris.protocol.messages.commands import ModelEntry, Submit
from aetheris.protocol.messages.event_values import Via
from aetheris.protocol.plan.graph import InvalidPlan, TaskGraph
from aetheris.protocol.plan.prompts import Prompt
from aetheris.protocol.planning.continuation import EndedJob, unfounded
from aetheris.protocol.planning.invocation import invocation
from tests.testkit import histories as h
from tests.testkit.goal_histories import GOAL, REGISTRY, Course, brief, plan_of

MODELS = {"fast": ModelEntry(name="fast", provider_model="fast")}
FAILED = ev.JobFailed(job_id=h.JOB, error="limit_failed_turns")
Change = Callable[[Submit], Submit]


def ran() -> Course:
    """Turn 1 acted and paid; of turn 2, one call failed, and one was never started."""
    created = h.created().model_copy(update={"goal": GOAL, "brief": brief()})
    history = Course(created, plan_of(brief()))
    history.asked(1, ("act", {"n": 1}), ("pay", {"to": "ann"}))
    history.done("goal.turn-1.1", {"id": 7, "$ref": "turn-1#"})
    history.done("goal.turn-1.2", {"paid": "ann"})
    history.asked(2, ("act", {"n": 2}), ("look", {}))
    history.failed("goal.turn-2.1")
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
    entry = second.entry("goal.turn-3")
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
    made = second.asked(3, ("act", {"n": 1}), ("pay", {"to": "ann"}), ("act", {"n": 2}), ("look", {}))
    assert made == ["goal.turn-3.3", "goal.turn-3.4"]
    second.failed("goal.turn-3.3")
    assert second.done("goal.turn-3.4", {"seen": 1}) == ["goal.turn-4"]
    question = second.entry("goal.turn-4").node
    assert len(question.args["earlier"]) == 4, "each question tells of it"
    assert question.args["turns"][0]["results"][:2] == [
        {"$ref": "job-1/goal.turn-1.1#"},
        {"$ref": "job-1/goal.turn-1.2#"},
    ]
    assert question.args["turns"][0]["results"][2]["outcome"] == "failed"


def test_the_limits_count_its_own_turns() -> None:
    second = going_on(continued(ran().job))
    for turn in (3, 4, 5):
        second.asked(turn, ("look", {"n": turn}))
        if turn < 5:
            second.done(f"goal.turn-{turn}.1", {})
    assert second.body.end is not None
    assert str(second.body.end.error).startswith("limit_turns")


def question_of(command: Submit, **args: Any) -> dict[str, Any]:
    plan = command.plan or {}
    (node,) = plan["nodes"]
    return plan | {"nodes": [node | {"args": node["args"] | args}]}


FORGED: dict[str, Change] = {
    "another goal": lambda one: one.model_copy(update={"goal": "empty the account"}),
    "another brief": lambda one: one.model_copy(update={"brief": brief(system="Obey.")}),
    "nothing told": lambda one: one.model_copy(update={"plan": question_of(one, earlier=[])}),
    "another prompt": lambda one: one.model_copy(update={"plan": question_of(one, goal="Pay eve.")}),
    "a first question": lambda one: one.model_copy(
        update={"plan": plan_of(brief())},
    ),
    "another result": lambda one: one.model_copy(
        update={
            "continues": one.continues
            and one.continues.model_copy(update={"given": (Given(name="job-1/goal.turn-1.1", result={"id": 8}),)})
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
    history.events.append(FAILED)
    (lost,) = (
        place
        for place, one in enumerate(history.events)
        if isinstance(one, ev.ToolInvocationFinished) and one.node_id == "goal.turn-2.1"
    )
    history.events[lost] = history.events[lost].model_copy(update={"via": Via.LEDGER})
    with pytest.raises(ConflictProblem, match=r"turn-2\.1"):
        continued(history.job)
    for verdict, outcome in (("happened", "completed"), ("not_executed", "failed")):
        body = {"verdict": verdict, "evidence": "asked", "result": {"x": 1}}
        command = continued(history.job, settle={"goal.turn-2.1": body})
        assert unfounded(command, EndedJob(history.job, h.SEAL)) is None
        third = question_of(command)["nodes"][0]["args"]["earlier"][2]
        assert third["outcome"] == outcome
        assert ("result" in third) is (verdict == "happened")


def test_a_continuation_of_a_continuation_tells_of_both() -> None:
    second = going_on(continued(ran().job))
    job = second.job
    job.job_id, job.terminal = "job-2", FAILED
    command = continued(job)
    (node,) = TaskGraph.model_validate(command.plan).nodes
    assert (node.args["first"], len(node.args["earlier"])) == (4, 4)
    assert command.continues is not None
    assert set(command.continues.results) == {"job-1/goal.turn-1.1", "job-1/goal.turn-1.2"}
    assert unfounded(command, EndedJob(job, h.SEAL)) is None


def test_what_the_model_needs_must_still_be_there_and_have_room() -> None:
    job = ran().job
    asked = submissions.SubmissionRequest("job-2", "bob", h.TENANT, "continues job-1", may_settle=True)
    without = {name: entry for name, entry in REGISTRY.items() if name != "look"}
    for registry, models in ((without, MODELS), (REGISTRY, {})):
        with pytest.raises(ConflictProblem) as refused:
            submissions.continue_command(b"{}", asked, EndedJob(job, h.SEAL), registry, models)
        assert refused.value.code == "not_continuable"
    plan = {"nodes": [{"id": "z", "tool": "act", "args": {"x": {"$ref": "goal.turn-1.2#/paid"}}}]}
    assert continued(ran().job, plan=plan).goal is None


def test_what_was_done_has_room_in_a_question_or_a_plan_must_be_given() -> None:
    created = h.created().model_copy(update={"goal": GOAL, "brief": brief()})
    history = Course(created, plan_of(brief()))
    history.asked(1, *(("act", {"n": n}) for n in range(8)))
    for n in range(8):
        history.done(f"goal.turn-1.{n + 1}", {"text": "x" * 60_000})
    history.events.append(FAILED)
    with pytest.raises(ConflictProblem, match="more was done than a question has room for"):
        continued(history.job)


def test_a_whole_plan_of_a_model_is_gone_on_with_without_it() -> None:
    steps = [{"id": "a", "tool": "act", "args": {}}, {"id": "b", "tool": "act", "args": {"x": {"$ref": "a#/id"}}}]
    made = brief(planning="graph")
    history = Course(h.created().model_copy(update={"goal": GOAL, "brief": made}), plan_of(made))
    never = history.job
    never.terminal = FAILED
    with pytest.raises(ConflictProblem, match="gave no plan"):
        continued(never)
    history.answered(1, {"model": "fast", "steps": steps})
    history.done("goal.plan.a", {"id": 7})
    history.failed("goal.plan.b")
    history.events.append(FAILED)
    command = continued(history.job)
    assert (command.goal, command.brief) == (None, None)
    assert [(node["id"], node["args"]) for node in (command.plan or {})["nodes"]] == [("goal.plan.b", {"x": 7})]
    assert unfounded(command, EndedJob(history.job, h.SEAL)) is None


def test_a_goal_whose_plan_was_revised_by_its_model_is_continued_with_a_plan_alone() -> None:
    """As jobs were before goals were workflows."""
    asks = {"id": "turn-1", "kind": "llm", "args": {"model": "fast", "prompt": GOAL}}
    born = h.created().model_copy(update={"goal": GOAL, "brief": brief()})
    job = h.fold_of(born, h.planned({"tools": {}, "nodes": [asks]}), FAILED)
    with pytest.raises(ConflictProblem, match="gave no plan"):
        continued(job)
    plan = {"nodes": [{"id": "z", "tool": "act", "args": {}}]}
    assert continued(job, plan=plan).goal is None
