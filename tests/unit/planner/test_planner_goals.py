"""Planning by a model: what the planner makes of recorded answers, whoever dies in between."""

from typing import Any

import pytest

from aetheris.planner.core.decisions import LoadArguments, RefusedSubmission
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import content_key, external_key
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel, Submit
from aetheris.protocol.messages.event_values import BlobRef, Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass, EffectKind, ToolPin
from aetheris.protocol.plan.prompts import Brief, Limits, first_graph
from aetheris.protocol.planning.invocation import NotReady, invocation
from aetheris.protocol.planning.schemas import graph_json
from tests.testkit.histories import JOB, TENANT
from tests.testkit.planners import Planner, PlannerSurroundings, events_of, of_type, requests
from tests.testkit.tries import end_word, try_of

GOAL = "do it"
PINS = {"act": ToolPin(version="1", schema_hash="s", effect_class=EffectClass.IDEMPOTENT)}
CALLS = [{"tool": "act", "args": {"n": 1}}, {"tool": "act", "args": {}}]
LOOK = {"model": "fast", "text": "first I look", "calls": CALLS}
END = {"model": "fast", "text": "done"}


def goal(planning: Any = "agent", **limits: Any) -> Submit:
    brief = Brief(model="fast", tools=("act",), planning=planning, limits=Limits.model_validate(limits))
    plan = graph_json(first_graph(GOAL, brief, PINS))
    return Submit(job_id=JOB, by="ann", tenant=TENANT, request_hash="r", goal=GOAL, brief=brief, plan=plan)


def started_planner(planning: Any = "agent", **limits: Any) -> Planner:
    planner = PlannerSurroundings().planner()
    planner.submit(goal(planning, **limits))
    return planner.settle()


def state(planner: Planner) -> JobState:
    return planner.core.jobs[JOB].job


def ran(planner: Planner, node: str, result: Any, **usage: Any) -> tuple[Event, Event]:
    """A call that an executor made, as the fold has it now."""
    job = state(planner)
    entry = job.entry(node)
    assert entry is not None
    call = invocation(job, entry)
    about: dict[str, Any] = {
        "job_id": JOB,
        "node_id": node,
        "idempotency_key": call.key,
        "invocation_id": try_of(f"nonce-{node}"),
    }
    started = ev.ToolInvocationStarted(
        **about,
        revision=job.revision,
        token=1,
        attempt_id=0,
        external_key=external_key(JOB, node, 0),
        kind=EffectKind(entry.node.kind),
        tool_name=entry.node.tool_name,
        tool_version=entry.tool_version,
        args_hash=call.args_hash,
        content_key=content_key(TENANT, entry.node.tool_name, call.args),
        worker_id="w",
        incarnation="i1",
    )
    finished = ev.ToolInvocationFinished(
        **about,
        outcome=Outcome.SUCCESS,
        via=Via.EXECUTOR,
        result=result,
        output_hash=digest(result),
        usage=usage or None,
        word=end_word(f"nonce-{node}", Outcome.SUCCESS, Via.EXECUTOR),
    )
    return started, finished


def happen(planner: Planner, node: str, result: Any, **usage: Any) -> Planner:
    return planner.happens(*ran(planner, node, result, **usage))


def facts(surroundings: PlannerSurroundings) -> list[str]:
    return [event.event_type for event in surroundings.log]


def test_a_goal_is_born_with_a_plan_that_asks_its_model() -> None:
    planner = started_planner()
    created, planned = planner.surroundings.log[:2]
    assert isinstance(created, ev.JobCreated)
    assert isinstance(planned, ev.PlanGenerated)
    assert (created.goal, created.plan, planned.planner) == (GOAL, None, "model")
    assert requests(planner.take())[0].body.nodes == ("turn-1",)
    assert set(state(planner).tools) == {"act"}


def test_an_answer_becomes_a_decision_and_a_revision_in_one_group() -> None:
    planner = started_planner()
    planner.take()
    happen(planner, "turn-1", LOOK)
    decided = planner.take()
    assert events_of(decided)[:3] == ["node_finished turn-1", "decision_snapshot", "plan_generated"]
    assert events_of(decided)[3:] == [("turn-1.1",), ("turn-1.2",)]
    (snapshot,), (_, planned) = (
        of_type(planner.surroundings, ev.DecisionSnapshot),
        of_type(planner.surroundings, ev.PlanGenerated),
    )
    assert (snapshot.goal, snapshot.command_id, snapshot.reasoning_summary) == (GOAL, "turn-1", "first I look")
    assert snapshot.task_graph == planned.diff
    assert [node["id"] for node in planned.diff["nodes"]] == ["turn-1.1", "turn-1.2", "turn-2"]


def test_the_loop_goes_on_with_results_until_an_answer_without_calls() -> None:
    planner = started_planner()
    happen(planner, "turn-1", LOOK)
    happen(planner, "turn-1.1", {"v": 1})
    assert state(planner).terminal is None
    happen(planner, "turn-1.2", {"v": 2})
    call = invocation(state(planner), state(planner).entries["turn-2"][0])
    assert call.args["turns"] == [{"answer": LOOK, "results": [{"v": 1}, {"v": 2}]}]
    happen(planner, "turn-2", END)
    assert facts(planner.surroundings)[-3:] == ["node_finished", "decision_snapshot", "job_completed"]
    assert of_type(planner.surroundings, ev.JobCompleted)[0].result == {"turn-2": END}
    first, last = of_type(planner.surroundings, ev.DecisionSnapshot)
    assert last.task_graph == {"nodes": []}
    assert (first.memory_summary, last.memory_summary) == (None, "1 earlier answers and 2 results of their calls")


def test_whoever_takes_over_decides_the_same_and_says_nothing_new() -> None:
    """Killed after the answer, after the decision, and at the end: the same records under the same ids."""
    planner = started_planner()
    surroundings = planner.surroundings
    surroundings.log.extend(ran(planner, "turn-1", LOOK))
    surroundings.ids.extend(["other", "other"])
    after = PlannerSurroundings(list(surroundings.log), list(surroundings.ids), dict(surroundings.index))
    planner.settle()
    heir = after.planner().restore()
    assert (surroundings.log, surroundings.ids) == (after.log, after.ids)
    repeated = after.planner()
    repeated.fold()
    assert [one for one in events_of(repeated.core.recover()) if isinstance(one, str)] == []
    for step in ("turn-1.1", "turn-1.2"):
        happen(heir, step, {"v": 0})
    happen(heir, "turn-2", END)
    cut = facts(after).index("job_completed")
    again = PlannerSurroundings(after.log[:cut], after.ids[:cut], dict(after.index))
    again.planner().restore()
    last = [(event, id_) for event, id_ in zip(again.log, again.ids, strict=True) if isinstance(event, ev.JobCompleted)]
    assert last == [(after.log[cut], after.ids[cut])]
    snapshots = [id_ for event, id_ in zip(again.log, again.ids, strict=True) if isinstance(event, ev.DecisionSnapshot)]
    assert len(set(snapshots)) == 2


def test_a_limit_stops_the_job_for_good_and_names_itself() -> None:
    planner = started_planner(tokens=100)
    happen(planner, "turn-1", LOOK, input_tokens=60, output_tokens=30)
    for node in ("turn-1.1", "turn-1.2"):
        happen(planner, node, {})
    happen(planner, "turn-2", LOOK, input_tokens=10, output_tokens=1)
    (stop,), (end,) = of_type(planner.surroundings, ev.JobStopping), of_type(planner.surroundings, ev.JobFailed)
    assert stop.reason == end.error == "limit_tokens: 101 of 100 tokens are used"
    assert end.node_id is None
    assert state(planner).revision == 1
    cut = facts(planner.surroundings).index("job_stopping")
    for place in (cut, cut + 1):
        surroundings = PlannerSurroundings(planner.surroundings.log[:place], planner.surroundings.ids[:place], {})
        surroundings.planner().restore()
        assert of_type(surroundings, ev.JobFailed) == [end]


def failed(planner: Planner, node: str, via: Via = Via.EXECUTOR) -> tuple[Event, Event]:
    """A call that failed: by its executor's word surely, by the ledger's not."""
    started, finished = ran(planner, node, None)
    lost = {"outcome": Outcome.PERMANENT, "via": via, "result": None, "output_hash": None, "error": "out of stock"}
    word = end_word(f"nonce-{node}", Outcome.PERMANENT, via)
    return started, finished.model_copy(update={**lost, "word": word})


def refused(planner: Planner, node: str) -> Event:
    job = state(planner)
    entry = job.entry(node)
    assert entry is not None
    key = invocation(job, entry).key
    about: dict[str, Any] = {"job_id": JOB, "node_id": node, "idempotency_key": key}
    return ev.InvocationRejected(**about, reason=RejectReason.POLICY, detail="rule never")


def prompt(planner: Planner, node: str) -> list[dict[str, Any]]:
    """The turns that a question tells of."""
    job = state(planner)
    entry = job.entry(node)
    assert entry is not None
    return invocation(job, entry).args["turns"]


def test_a_model_is_told_what_surely_failed_and_goes_on() -> None:
    planner = started_planner()
    happen(planner, "turn-1", LOOK)
    planner.happens(*failed(planner, "turn-1.1"))
    assert (state(planner).revision, of_type(planner.surroundings, ev.JobStopping)) == (1, []), (
        "the other call is still to end"
    )
    planner.happens(refused(planner, "turn-1.2"))
    assert state(planner).revision == 2
    (turn,) = prompt(planner, "turn-2")
    reported = [{name: one[name] for name in ("outcome", "has_effect", "error_message")} for one in turn["results"]]
    assert reported == [
        {"outcome": "failed", "has_effect": "none", "error_message": "out of stock"},
        {"outcome": "rejected", "has_effect": "none", "error_message": "policy: rule never"},
    ]
    happen(planner, "turn-2", {"model": "fast", "calls": CALLS[:1]})
    happen(planner, "turn-2.1", {"v": 1})
    happen(planner, "turn-3", END)
    (end,) = of_type(planner.surroundings, ev.JobCompleted)
    assert end.result == {"turn-3": END}
    assert [turn["results"][0] for turn in prompt(planner, "turn-3")] == [turn["results"][0], {"v": 1}]


def test_only_a_question_that_could_never_be_asked_is_replaced() -> None:
    """So no revision that is made here replaces a node that a human is asked about (ledger.core.approvals.answer)."""
    planner = started_planner()
    happen(planner, "turn-1", LOOK)
    happen(planner, "turn-1.1", {"v": 1})
    planner.happens(*failed(planner, "turn-1.2"))
    replaced = state(planner).entry("turn-2", revision=1)
    assert replaced is not None
    with pytest.raises(NotReady):
        invocation(state(planner), replaced)
    happen(planner, "turn-2", {"model": "fast", "calls": CALLS[:1]})
    happen(planner, "turn-3", END)
    entries = state(planner).entries
    assert {name: len(subject) for name, subject in entries.items()} == dict.fromkeys(entries, 1) | {"turn-2": 2}


def test_whoever_takes_over_tells_the_same_of_what_failed() -> None:
    planner = started_planner()
    happen(planner, "turn-1", LOOK)
    happen(planner, "turn-1.1", {"v": 1})
    surroundings = planner.surroundings
    for event in failed(planner, "turn-1.2"):
        planner.append(event, "other")
    heirs = [
        PlannerSurroundings(list(surroundings.log), list(surroundings.ids), dict(surroundings.index)) for _ in range(2)
    ]
    planner.settle()
    assert of_type(surroundings, ev.PlanGenerated)[-1].revision == 2
    for heir in heirs:
        heir.planner().restore()
        assert (heir.log, heir.ids) == (surroundings.log, surroundings.ids)
    again = heirs[0].planner()
    again.fold()
    assert [one for one in events_of(again.core.recover()) if isinstance(one, str)] == []


def test_what_is_not_sure_stops_the_job() -> None:
    planner = started_planner()
    happen(planner, "turn-1", LOOK)
    planner.happens(*failed(planner, "turn-1.1", Via.LEDGER))
    happen(planner, "turn-1.2", {})
    assert isinstance(state(planner).terminal, ev.JobFailed)
    assert state(planner).revision == 1


def test_a_cap_ends_the_turns_with_failed_calls() -> None:
    planner = started_planner(failed_turns=2)
    for turn in (1, 2, 3):
        calls = [{"tool": "act", "args": {"turn": turn, "place": place}} for place in (1, 2)]
        happen(planner, f"turn-{turn}", {"model": "fast", "calls": calls})
        happen(planner, f"turn-{turn}.1", {})
        planner.happens(*failed(planner, f"turn-{turn}.2"))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert end.error == "limit_failed_turns: 2 turns with a failed call are allowed; turn-3.2: out of stock"
    assert end.node_id == "turn-3.2"
    cut = facts(planner.surroundings).index("job_stopping")
    surroundings = PlannerSurroundings(planner.surroundings.log[:cut], planner.surroundings.ids[:cut], {})
    surroundings.planner().restore()
    assert of_type(surroundings, ev.JobFailed) == [end]


def test_an_equal_call_of_a_model_is_made_again_only_where_it_surely_took_no_effect() -> None:
    planner = started_planner()
    act, other = CALLS
    happen(planner, "turn-1", {"model": "fast", "calls": [act, other, act]})
    assert list(state(planner).entries) == ["turn-1", "turn-1.1", "turn-1.2", "turn-2"]
    happen(planner, "turn-1.1", {"v": 1})
    planner.happens(*failed(planner, "turn-1.2"))
    happen(planner, "turn-2", {"model": "fast", "calls": [other, act]})
    assert [name for name in state(planner).entries if name.startswith("turn-2.")] == ["turn-2.1"]
    happen(planner, "turn-2.1", {"v": 2})
    first, second = prompt(planner, "turn-3")
    assert [first["results"][place] for place in (0, 2)] == [{"v": 1}] * 2
    assert second["results"] == [{"v": 2}, {"v": 1}]
    happen(planner, "turn-3", {"model": "fast", "calls": [act, other]})
    assert prompt(planner, "turn-4")[2]["results"] == [{"v": 1}, {"v": 2}]
    happen(planner, "turn-4", END)
    assert of_type(planner.surroundings, ev.JobCompleted)[0].result == {"turn-4": END}


def test_a_revision_that_comes_behind_a_stop_is_void_and_the_job_ends() -> None:
    """A cancel lies before the plan of a planner that did not know of it."""
    planner = started_planner()
    job = state(planner)
    stop = ev.JobStopping(job_id=JOB, by="bob", reason="cancelled", up_to_revision=0)
    asked = ev.CancelRequested(job_id=JOB, by="bob")
    started, finished = ran(planner, "turn-1", LOOK)
    zombie = planner.surroundings.planner()
    zombie.fold()
    for event in (started, finished):
        planner.append(event, "other")
    zombie.fold()
    late = zombie.core.decide()
    for event in (asked, stop):
        planner.append(event, "other")
    zombie.write(late)
    assert facts(planner.surroundings)[-2:] == ["decision_snapshot", "plan_generated"]
    planner.settle()
    assert (job.revision, "turn-1.1" in job.entries) == (0, False)
    assert isinstance(job.terminal, ev.JobCancelled)
    assert of_type(planner.surroundings, ev.PlanGenerated)[2:] == []


def test_a_cancel_while_the_model_thinks_lets_nothing_follow() -> None:
    planner = started_planner()
    started, finished = ran(planner, "turn-1", LOOK)
    planner.happens(started)
    planner.cancel(Cancel(job_id=JOB, by="bob", tenant=TENANT))
    planner.settle()
    planner.happens(finished)
    assert of_type(planner.surroundings, ev.DecisionSnapshot) == []
    assert isinstance(state(planner).terminal, ev.JobCancelled)


def test_a_whole_plan_at_once_ends_with_its_steps() -> None:
    planner = started_planner("graph")
    steps = [{"id": "a", "tool": "act"}, {"id": "b", "tool": "act", "args": {"v": {"$ref": "a#/v"}}}]
    happen(planner, "turn-1", {"model": "fast", "steps": steps})
    assert requests(planner.take())[-1].body.nodes == ("plan.a", "plan.b")
    happen(planner, "plan.a", {"v": 1})
    happen(planner, "plan.b", {"v": 2})
    assert of_type(planner.surroundings, ev.JobCompleted)[0].result["plan.b"] == {"v": 2}


def test_no_plan_is_a_failure_and_nobody_asks_again() -> None:
    planner = started_planner("graph")
    happen(planner, "turn-1", {"model": "fast", "refused": "steps[1].id: a stands twice"})
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert end.error == "no_plan: answer: steps[1].id: a stands twice"
    assert [one.body.nodes for one in requests(planner.take())] == [("turn-1",)]


def test_a_large_answer_is_loaded_and_waits_where_it_cannot_be() -> None:
    planner = started_planner()
    started, finished = ran(planner, "turn-1", LOOK)
    ref = BlobRef(sha256=digest(LOOK), size=70_000)
    large = finished.model_copy(update={"result": None, "result_ref": ref})
    for event in (started, large):
        planner.append(event, "other")
    planner.fold()
    (load,) = [one for one in planner.core.decide() if isinstance(one, LoadArguments)]
    assert load == LoadArguments(JOB, "turn-1", (ref,))
    assert planner.core.resolved(JOB, "turn-1", None) == []
    assert [one for one in planner.core.recover() if isinstance(one, LoadArguments)] == [load]
    planner.write(planner.core.resolved(JOB, "turn-1", {ref.sha256: LOOK}))
    planner.settle()
    assert of_type(planner.surroundings, ev.PlanGenerated)[-1].revision == 1


def test_a_birth_that_does_not_follow_from_its_goal_is_refused() -> None:
    command = goal()
    plan = command.plan or {}
    nodes = [plan["nodes"][0] | {"args": plan["nodes"][0]["args"] | {"prompt": "something else"}}]
    for update in ({"brief": None}, {"plan": plan | {"nodes": nodes}}, {"plan": plan | {"tools": {}}}):
        refused = Partition(lambda _: None).submit(command.model_copy(update=update), "cmd", 0)
        assert isinstance(refused, RefusedSubmission)
