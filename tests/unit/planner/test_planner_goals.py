"""Goals: their birth, what is recorded beside a model's answers, and how a call of the body is no end of the job."""

from typing import Any

from aetheris.planner.core.decisions import RefusedSubmission
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.keys import content_key, external_key
from aetheris.protocol.base.words import CallWords
from aetheris.protocol.fold.state import JobState, PlanEntry
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.event_values import BlobRef, Outcome, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectClass, EffectKind, Kind, Node, ToolPin
from aetheris.protocol.plan.prompts import Brief, Limits, asking
from aetheris.protocol.planning.goals import GOAL_ENTRY, goal_graph
from aetheris.protocol.planning.invocation import invocation
from aetheris.protocol.planning.schemas import graph_json, pin_of
from tests.testkit.histories import JOB, TENANT
from tests.testkit.planners import Planner, PlannerSurroundings, events_of, of_type, requests
from tests.testkit.tries import end_word, try_of

GOAL = "do it"
PINS = {"act": ToolPin(version="1", schema_hash="s", effect_class=EffectClass.IDEMPOTENT)}
CALLS: list[dict[str, Any]] = [{"tool": "act", "args": {"n": 1}}, {"tool": "act", "args": {}}]
LOOK = {"model": "fast", "text": "first I look", "calls": CALLS}
END = {"model": "fast", "text": "done"}
WORDS = CallWords.of(b"w" * 32, 10)


def goal(planning: Any = "agent", **limits: Any) -> Submit:
    brief = Brief(model="fast", tools=("act",), planning=planning, limits=Limits.model_validate(limits))
    plan = graph_json(goal_graph(GOAL, brief, PINS, pin_of(GOAL_ENTRY)))
    return Submit(job_id=JOB, by="ann", tenant=TENANT, request_hash="r", goal=GOAL, brief=brief, plan=plan)


def started_planner(planning: Any = "agent", **limits: Any) -> Planner:
    """A goal's job whose body runs."""
    planner = PlannerSurroundings().planner()
    planner.submit(goal(planning, **limits))
    planner.settle()
    started, _ = ran(planner, "goal", None)
    return planner.happens(started)


def state(planner: Planner) -> JobState:
    return planner.core.jobs[JOB].job


def plans(planner: Planner, *nodes: Node) -> Planner:
    """Its body plans calls."""
    said = sum(isinstance(event, ev.CallPlanned) for event in planner.surroundings.log)
    for place, node in enumerate(nodes, start=said):
        entry = PlanEntry(0, node, PINS.get(node.tool or ""))
        call = invocation(state(planner), entry) if node.refs else None
        planned = ev.CallPlanned(
            job_id=JOB,
            node_id=node.id,
            parent="goal",
            invocation_id=try_of("nonce-goal"),
            entry={"kind": node.kind.value} | node.model_dump(mode="json", exclude_defaults=True),
            word=WORDS.word(place),
            frontier="0" * 64,
            call_key=call and call.key,
            args_hash=call and call.args_hash,
        )
        planner.happens(planned)
    return planner


def question(planner: Planner, turn: int = 1, turns: Any = ()) -> Node:
    """What the body asks."""
    brief = state(planner).created.brief
    assert brief is not None
    return asking(GOAL, brief, PINS, turn, turns)


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
        kind=EffectKind.LLM if entry.node.kind is Kind.LLM else EffectKind.TOOL,
        tool_name=entry.node.tool_name,
        tool_version=entry.tool_version,
        args_hash=call.args_hash,
        content_key=content_key(TENANT, entry.node.tool_name, call.args),
        worker_id="w",
        incarnation="i1",
        parent_invocation=entry.call.invocation_id if entry.call is not None else None,
        plans=WORDS.plans if entry.node.kind is Kind.WORKFLOW else None,
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


def test_a_goal_is_born_with_a_plan_of_one_node_whose_body_goes_for_it() -> None:
    planner = PlannerSurroundings().planner()
    planner.submit(goal())
    planner.settle()
    created, planned = planner.surroundings.log[:2]
    assert isinstance(created, ev.JobCreated)
    assert isinstance(planned, ev.PlanGenerated)
    assert (created.goal, created.plan, planned.planner, planned.bodies) == (GOAL, None, "model", True)
    assert requests(planner.take())[0].body.nodes == ("goal",)
    assert set(state(planner).tools) == {"act", "goal"}


def test_beside_an_answer_it_is_recorded_what_that_asks_for_and_what_the_model_had_been_told() -> None:
    planner = started_planner()
    plans(planner, question(planner))
    planner.take()
    happen(planner, "goal.turn-1", LOOK)
    assert events_of(planner.take()) == ["node_finished goal.turn-1", "decision_snapshot"]
    (snapshot,) = of_type(planner.surroundings, ev.DecisionSnapshot)
    assert (snapshot.goal, snapshot.command_id, snapshot.reasoning_summary) == (GOAL, "goal.turn-1", "first I look")
    assert [node["id"] for node in snapshot.task_graph["nodes"]] == ["goal.turn-1.1", "goal.turn-1.2"]
    plans(
        planner, *(Node(id=f"goal.turn-1.{place}", tool="act", args=one["args"]) for place, one in enumerate(CALLS, 1))
    )
    happen(planner, "goal.turn-1.1", {"v": 1})
    happen(planner, "goal.turn-1.2", {"v": 2})
    results = [{"$ref": f"goal.turn-1.{place}#"} for place in (1, 2)]
    plans(planner, question(planner, 2, [{"answer": {"$ref": "goal.turn-1#"}, "results": results}]))
    happen(planner, "goal.turn-2", END)
    first, last = of_type(planner.surroundings, ev.DecisionSnapshot)
    assert last.task_graph == {"nodes": []}
    assert (first.memory_summary, last.memory_summary) == (None, "1 earlier answers and 2 results of their calls")
    planner.happens(ran(planner, "goal", END)[1])
    assert of_type(planner.surroundings, ev.JobCompleted)[0].result == {"goal": END}
    assert state(planner).revision == 0, "nobody changes the plan"


def test_whoever_takes_over_records_the_same_and_nothing_twice() -> None:
    planner = started_planner()
    plans(planner, question(planner))
    surroundings = planner.surroundings
    surroundings.log.extend(ran(planner, "goal.turn-1", LOOK))
    surroundings.ids.extend(["other", "other"])
    after = PlannerSurroundings(list(surroundings.log), list(surroundings.ids), dict(surroundings.index))
    planner.settle()
    after.planner().restore()
    assert (surroundings.log, surroundings.ids) == (after.log, after.ids)
    assert len(of_type(after, ev.DecisionSnapshot)) == 1
    repeated = after.planner()
    repeated.fold()
    assert [one for one in events_of(repeated.core.recover()) if isinstance(one, str)] == []


def test_a_large_answer_is_recorded_without_what_it_asks_for() -> None:
    planner = started_planner()
    plans(planner, question(planner))
    started, finished = ran(planner, "goal.turn-1", LOOK)
    ref = BlobRef(sha256=digest(LOOK), size=70_000)
    planner.happens(started, finished.model_copy(update={"result": None, "result_ref": ref}))
    (snapshot,) = of_type(planner.surroundings, ev.DecisionSnapshot)
    assert (snapshot.command_id, snapshot.reasoning_summary, snapshot.task_graph) == (
        "goal.turn-1",
        None,
        {"nodes": []},
    )


def test_a_call_that_failed_is_no_end_of_the_job_but_how_the_body_ends_is() -> None:
    planner = started_planner()
    plans(planner, Node(id="goal.turn-1.1", tool="act"))
    started, finished = ran(planner, "goal.turn-1.1", None)
    lost: dict[str, Any] = {"outcome": Outcome.PERMANENT, "result": None, "output_hash": None, "error": "out of stock"}
    word = end_word("nonce-goal.turn-1.1", Outcome.PERMANENT, Via.EXECUTOR)
    planner.happens(started, finished.model_copy(update=lost | {"word": word}))
    assert of_type(planner.surroundings, ev.JobStopping) == []
    limit = "limit_turns: 1 turns are used, and the goal is not reached"
    word = end_word("nonce-goal", Outcome.PERMANENT, Via.EXECUTOR)
    planner.happens(ran(planner, "goal", None)[1].model_copy(update=lost | {"error": limit, "word": word}))
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert (end.error, end.node_id) == (limit, "goal")


def test_a_birth_that_does_not_follow_from_its_goal_is_refused() -> None:
    command = goal()
    plan = command.plan or {}
    node = plan["nodes"][0]
    others = (
        [node | {"args": node["args"] | {"goal": "something else"}}],
        [node | {"args": node["args"] | {"first": 2}}],
    )
    changes = (
        {"brief": None},
        *({"plan": plan | {"nodes": nodes}} for nodes in others),
        {"plan": plan | {"tools": {}}},
    )
    for update in changes:
        refused = Partition(lambda _: None).submit(command.model_copy(update=update), "cmd", 0)
        assert isinstance(refused, RefusedSubmission)
