"""Replay, effect log, provenance and trace, over histories made by hand."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.conditions import BadCondition, asked_condition
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.adoption import Use
from aetheris.protocol.messages.events import Event
from aetheris.protocol.plan.graph import EffectKind
from aetheris.views.job_history import JobHistory, job_history
from aetheris.views.provenance import EffectFilter, origin
from aetheris.views.replayed_job import UnknownPoint, replay
from aetheris.views.trace import trace_of
from tests.testkit import histories as h
from tests.testkit.goal_histories import Course, brief, plan_of
from tests.testkit.job_histories import committed, records, refunded
from tests.testkit.tries import try_of


def rules(events: Iterable[Event]) -> list[str]:
    return [one.rule for one in job_history(records(*events)).differences]


def test_a_job_replays_as_it_was_recorded_with_every_result_injected() -> None:
    found, steps = replay(records(*refunded()))
    report = found.report()
    assert (report["ok"], report["injected"], report["state"]["status"]) == (True, {"tool": 2}, "completed")
    assert report["state"]["done"] == ["lookup", "pay"]
    assert all(step.moment.counts for step in steps)
    assert steps[7].changes == {"pay": "running"}
    assert steps[-1].changes == {"job": "completed"}
    assert found.history.calls[h.key_of("pay", {"amount": 250}, "refund")].args == {"amount": 250}


def test_replaying_twice_gives_the_same_states_at_every_point() -> None:
    log = records(*refunded())
    for number in range(1, len(log) + 1):
        first, _ = replay(log, str(number))
        again, _ = replay(log[:number])
        assert first.report() == again.report()


@pytest.mark.parametrize("point", ["e7", "8", "2026-01-01T00:00:07.5Z", "2026-01-01T00:00:07+00:00"])
def test_a_point_is_an_event_a_number_or_a_time(point: str) -> None:
    found, _ = replay(records(*refunded()), point)
    report = found.report()
    assert (report["at"]["id"], report["state"]["open"]) == ("e7", [h.key_of("pay", {"amount": 250}, "refund")])


@pytest.mark.parametrize("point", ["e99", "13", "yesterday", "2025-01-01T00:00:00Z"])
def test_a_point_that_is_none_is_refused(point: str) -> None:
    with pytest.raises(UnknownPoint):
        replay(records(*refunded()), point)


def test_what_does_not_follow_from_the_record_is_named() -> None:
    clean = refunded()
    other = h.started("pay", "n2", args={"amount": 9000}, tool="refund")
    body = {"idempotency_key": other.idempotency_key, "args_hash": other.args_hash}
    allowed = clean[6].model_copy(update=body)
    assert rules([*clean[:6], allowed, other]) == ["call_differs"]
    assert rules([*clean[:3], clean[3].model_copy(update={"result": {"amount": 1}})]) == ["result_differs"]
    assert rules([*clean[:5], clean[5].model_copy(update={"result_type": "side_effect_committed"})]) == [
        "result_type_differs"
    ]
    assert rules([*clean[:5], clean[5].model_copy(update={"output_hash": "0"})]) == ["output_differs"]
    assert rules([*clean[:5], clean[-1]]) == ["incomplete"]
    assert rules([clean[0], clean[1].model_copy(update={"plan_hash": "0"})]) == ["plan_hash_differs"]


def test_an_effect_has_its_row_and_the_rows_are_the_same_every_time() -> None:
    log = records(*refunded())
    effects = job_history(log).effects.to_json(h.JOB)
    assert json.dumps(effects) == json.dumps(job_history(log).effects.to_json(h.JOB))
    lookup, pay = effects["effects"]
    assert (lookup["step_index"], lookup["kind"], lookup["command_id"]) == (0, "tool", "lookup")
    assert "external_id" not in lookup
    assert (pay["external_id"], pay["committed"], pay["stands"], pay["seq"]) == ("re_123", True, True, 9)
    assert pay["created_at"] == "2026-01-01T00:00:08+00:00"


def test_a_repeat_makes_no_second_row_and_a_second_effect_does() -> None:
    events = refunded()
    again = events[8]
    assert len(job_history(records(*events, again)).effects.rows) == 2
    pay: dict[str, Any] = {"args": {"amount": 250}, "tool": "refund"}
    reopened = h.about(ev.InvocationReopened, "pay", invocation_id="n2", next_token=2, by="policy", **pay)
    late = [*events[:8], reopened, h.started("pay", "n3", token=2, **pay), h.finished("pay", "n3", **pay), events[8]]
    rows = job_history(records(*late)).effects.rows
    assert [(row["command_id"], row["invocation_id"], row["stands"]) for row in rows[1:]] == [
        ("pay", try_of("n3"), True),
        ("pay", try_of("n2"), False),
    ]


def test_an_irreversible_effect_without_an_external_id_says_so() -> None:
    assert job_history(records(*refunded())).effects.rows[1].get("untraceable") is None
    assert job_history(records(*refunded(external_id=None))).effects.rows[1]["untraceable"] is True


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_of_a_model_is_linked_to_the_decision_and_to_the_calls_that_came_of_it(late: bool) -> None:
    """Also where the planner recorded the decision only after a call of it had been made."""
    course = Course(h.created().model_copy(update={"goal": "do it", "brief": brief()}), plan_of(brief()))
    decided = ev.DecisionSnapshot(
        job_id=h.JOB, goal="do it", task_graph={"nodes": []}, command_id="goal.turn-1", reasoning_summary="I act"
    )
    course.asked(1, ("act", {"n": 1}))
    course.events += [] if late else [decided]
    course.done("goal.turn-1.1", {"v": 1})
    course.events += [decided] if late else []
    history = job_history(records(*course.logged))
    think, act = history.effects.rows
    assert (think["kind"], act["tool_name"]) == ("llm", "act")
    snapshot = next(one.logged.id for one in history.moments if one.logged.type == "decision_snapshot")
    assert think["decision_snapshot_id"] == act["decision_snapshot_id"] == snapshot
    assert whats(origin(history, act)) == ["effect", "try", "step", "decision", "used", "plan", "goal"]
    plan, decision = trace_of(history)["decisions"]["leads_to"]
    assert [one["node_id"] for one in plan["nodes"]] == ["goal", "goal.turn-1", "goal.turn-2"]
    assert [one["node_id"] for one in decision["nodes"]] == ["goal.turn-1.1"]
    assert (decision["from"][0]["title"], decision["facts"]["reasoning_summary"]) == ("goal.turn-1: llm", "I act")


def test_a_step_that_uses_what_an_earlier_job_did_says_so() -> None:
    """Where it refers to it, and where its value stands; and nothing is said of what it doesn't use."""
    born = h.adopts("a", {}, result={"v": 1})
    assert born.continues is not None
    use = Use(node_id="c", at="/args/x", ref="a#/v")
    born = born.model_copy(update={"continues": born.continues.model_copy(update={"uses": (use,)})})
    nodes = ({"id": "b", "args": {"x": {"$ref": "job-0/a#/v"}}}, {"id": "c", "args": {"x": 1}}, {"id": "d"})
    events = [born, h.planned(h.graph(*nodes))]
    for node, args in (("b", {"x": 1}), ("c", {"x": 1}), ("d", None)):
        events += [h.started(node, f"n-{node}", args=args), h.finished(node, f"n-{node}", args=args)]
    history = job_history(records(*events))
    for row in history.effects.rows:
        (step,) = [one for one in origin(history, row)["because"] if one["what"] == "step"]
        used = [one["facts"] for one in step["because"] if one["what"] == "used"]
        told = {"job_id": "job-0", "node_id": "a", "output_hash": digest({"v": 1})}
        assert used == ([] if row["command_id"] == "d" else [told])
        (goal,) = [one for one in step["because"][-1]["because"] if one["what"] == "goal"]
        assert goal["facts"]["continues"] == "job-0"


def test_a_question_that_no_verifier_answers_is_named_at_the_effect_until_it_is_answered() -> None:
    since = "2026-01-01T00:00:00Z"
    wait: Any = {"job_id": h.JOB, "wait_type": "verifier", "node_id": "b", "correlation_key": "7.a"}
    asked = ev.JobWaiting(**wait, since=since)
    events = [
        h.created(),
        h.planned(h.graph({"id": "a"}, {"id": "b", "depends_on": ["a"]})),
        h.started("a", "n1"),
        h.finished("a", "n1"),
        asked,
    ]
    history = job_history(records(*events))
    (row,) = history.effects.rows
    assert row["unanswered"] == {"waits": "b", "since": since}
    (tree,) = [one for one in origin(history, row)["because"] if one["what"] == "confirmation"]
    assert tree["title"].startswith(
        f"b waits for a verifier: whether what a did still stands was asked first at {since}"
    )
    assert tree["at"]["type"] == "job_waiting"
    for end in (ev.WaitCompleted(**wait), ev.JobCancelled(job_id=h.JOB, by="ann", reason=None)):
        after = job_history(records(*events, end))
        assert "unanswered" not in after.effects.rows[0]
        assert "confirmation" not in whats(origin(after, after.effects.rows[0]))


FORM = {"title": "Which one?", "fields": []}


def every_kind() -> list[Event]:
    """A model is asked, and plans; a tool, one over HTTP, a human, a clock and chance each have their turn."""
    plan = {
        "tools": h.graph({"id": "act"}, act={}, post={})["tools"],
        "nodes": [
            {"id": "now", "kind": "time"},
            {"id": "dice", "kind": "random"},
            {"id": "which", "kind": "human", "form": {"title": "Which one?"}},
            {"id": "think", "kind": "llm", "args": {"model": "fast", "goal": "do it"}},
            {"id": "act", "tool": "act"},
            {"id": "post", "tool": "post"},
        ],
    }
    asked = ev.JobWaiting(
        job_id=h.JOB,
        wait_type="human",
        node_id="which",
        idempotency_key=h.key_of("which", None, "human"),
        form=FORM,
    )
    answered = ev.WaitCompleted(
        job_id=h.JOB,
        wait_type="human",
        node_id="which",
        idempotency_key=asked.idempotency_key,
        payload={"choice": 2},
        output_hash=digest({"choice": 2}),
        by="alice",
    )
    prompt = {"model": "fast", "goal": "do it"}
    answer, usage = {"model": "fast", "calls": []}, {"model": "m-1", "input_tokens": 5, "output_tokens": 7}
    event = h.finished("think", "n3", result=answer, args=prompt, tool="llm").model_copy(update={"usage": usage})
    decided = ev.DecisionSnapshot(
        job_id=h.JOB, goal="do it", task_graph={}, command_id="think", reasoning_summary="there is a choice"
    )

    def call(node: str, invocation_id: str, tool: str, kind: EffectKind, result: Any, **more: Any) -> list[Event]:
        start = h.started(node, invocation_id, tool=tool, **more).model_copy(update={"kind": kind})
        done = h.finished(node, invocation_id, result=result, args=more.get("args"), tool=tool)
        return [start, done, committed(node, start.idempotency_key, result, kind)]

    think = call("think", "n3", "llm", EffectKind.LLM, answer, args=prompt)
    return [
        h.created(),
        h.planned(plan),
        *call("now", "n1", "time", EffectKind.TIME, {"unix_ms": 1}),
        *call("dice", "n2", "random", EffectKind.RANDOM, {"value": 0.5}),
        asked,
        answered,
        think[0],
        event,
        think[2],
        decided,
        *call("act", "n4", "act", EffectKind.TOOL, {"id": 1}),
        *call("post", "n5", "post", EffectKind.HTTP, {"status": 201}),
        ev.JobCompleted(job_id=h.JOB),
    ]


def test_effects_of_every_kind_have_their_rows() -> None:
    """Their fields are those of the contract; where one applies to no kind of the row, it is not there."""
    log = records(*every_kind())
    history = job_history(log)
    rows = {row["command_id"]: row for row in history.effects.rows}
    assert {node: row["kind"] for node, row in rows.items()} == {
        "now": "time",
        "dice": "random",
        "which": "human",
        "think": "llm",
        "act": "tool",
        "post": "http",
    }
    assert {one["kind"] for one in history.effects.rows} == {kind.value for kind in EffectKind}
    for row in rows.values():
        assert {"job_id", "step_index", "command_id", "kind", "input_hash", "output_hash", "created_at"} <= row.keys()
        assert (row["job_id"], row["committed"], row["stands"]) == (h.JOB, True, True)
        assert ("prompt_hash" in row, "response_hash" in row, "model" in row) == (3 * (row["kind"] == "llm",))
    think, which = rows["think"], rows["which"]
    started = next(
        event for event in every_kind() if isinstance(event, ev.ToolInvocationStarted) and event.kind == "llm"
    )
    assert (think["prompt_hash"], think["input_hash"]) == (started.args_hash, started.args_hash)
    assert think["response_hash"] == think["output_hash"] == digest({"model": "fast", "calls": []})
    assert (think["model"], think["usage"]) == ("m-1", {"input_tokens": 5, "output_tokens": 7})
    decision = next(one.logged.id for one in history.moments if one.logged.type == "decision_snapshot")
    assert {node for node, row in rows.items() if row.get("decision_snapshot_id") == decision} == {"think"}
    assert (which["input_hash"], which["output_hash"], which["by"]) == (digest(FORM), digest({"choice": 2}), "alice")
    assert json.dumps(job_history(log).effects.to_json(h.JOB)) == json.dumps(history.effects.to_json(h.JOB))
    report = replay(log)[0].report()
    assert report["injected"] == {"http": 1, "human": 1, "llm": 1, "random": 1, "time": 1, "tool": 1}
    for row in rows.values():
        assert whats(origin(history, row))[0] == "effect"
    assert whats(origin(history, rows["post"])) == ["effect", "try", "step", "plan", "goal"]
    assert trace_of(history)["effects"] == history.effects.rows


def test_a_human_who_answers_twice_has_one_row() -> None:
    events = every_kind()
    again = [event for event in events if isinstance(event, ev.WaitCompleted)]
    assert len(job_history(records(*events, *again)).effects.rows) == len(job_history(records(*events)).effects.rows)


def whats(tree: dict[str, Any]) -> list[str]:
    """What a tree is made of, from its root."""
    return [tree["what"], *(what for inner in tree["because"] for what in whats(inner))]


def found_by(history: JobHistory, **asked: Any) -> list[str]:
    given: dict[str, Any] = {"external_id": None, "tool": None, "since": None, "where": ()} | asked
    return [row["command_id"] for row in EffectFilter.of(**given).among(history)]


def test_the_way_back_goes_from_the_outside_to_the_goal() -> None:
    history = job_history(records(*refunded()))
    (row,) = EffectFilter("re_123").among(history)
    tree = origin(history, row)
    assert whats(tree) == ["effect", "approval", "try", "step", "used", "plan", "goal"]
    assert tree["because"][0]["title"] == "approve by alice"
    assert tree["because"][2]["facts"]["args"] == {"amount": 250}


def test_effects_are_found_by_what_is_known_of_them() -> None:
    history = job_history(records(*refunded()))
    assert found_by(history, external_id="aetheris:job-1:pay:0") == ["pay"]
    assert found_by(history, tool="refund") == ["pay"]
    assert found_by(history, since="2026-01-01T00:00:05Z") == ["pay"]
    assert found_by(history, where=["args.amount > 100"]) == ["pay"]
    assert found_by(history, where=["args.amount > 250"]) == []
    assert found_by(history, where=["args.order == 'o-1'"]) == ["lookup"]
    with pytest.raises(BadCondition):
        found_by(history, since="soon")


AMOUNT = {"a": {"b": 1}, "name": "Ann", "number": "007", "flag": True, "to": ["ann", "bob"], "high": 250.5}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("args.amount.a.b == 1", True),
        ("args.amount.a.b == 1.0", True),
        ("args.amount.high > 250", True),
        ("args.amount.a.c == 1", False),
        ("args.amount.a.c != 1", False),
        ("args.amount.name.contains('nn') && args.amount.flag", True),
        ("args.amount.to.exists(one, one == 'bob')", True),
        ("args.amount.number == 7", False),
        ("args.amount.name > 3", False),
        ("args.amount.name", False),
    ],
)
def test_a_condition_that_can_not_be_judged_finds_nothing(text: str, found: bool) -> None:
    history = job_history(records(*refunded(AMOUNT)))
    assert found_by(history, where=[text]) == (["pay"] if found else [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "where"),
        ("args.amount >", "where"),
        ("amount > 100", "there is no amount; there is args"),
        ("args.a == " + "1" * 500, "at most 500 characters"),
        ("[1].all(a, true) && [1].all(b, true) && [1].all(c, true)", "at most 2 of all"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadCondition, match=says):
        asked_condition("where", text)


def test_the_graph_says_what_each_step_took_from_which() -> None:
    trace = trace_of(job_history(records(*refunded())))
    assert trace["graph"]["edges"] == [{"from": "lookup", "to": "pay", "carries": "result"}]
    assert [(node["node_id"], node["state"]) for node in trace["graph"]["nodes"]] == [
        ("lookup", "completed"),
        ("pay", "completed"),
    ]
    assert trace["steps"][1]["keys"][0]["args"] == {"amount": 250}


def test_records_that_say_nothing_readable_are_told_and_change_nothing() -> None:
    log = records(*refunded())
    odd = Record(log[0].topic, 0, 10**6, 0, log[0].key, (("ce_id", b"odd"),), b"\xff<script>")
    found, steps = replay([*log, odd])
    assert (found.report()["state"]["status"], steps[-1].moment.counts) == ("completed", False)
    assert replay([odd])[0].report() == {}
