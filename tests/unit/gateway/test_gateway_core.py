"""What the gateway says of submissions, jobs and events, without any I/O."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.gateway.core import answers, bodies, reconciliations, submissions, wire
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.protocol.api import ResolveBody
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import Sequence, next_logged_event
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit
from aetheris.protocol.messages.event_values import Decision, RejectReason
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.plan.prompts import Brief, Limits
from aetheris.protocol.planning.approvals import request_id
from aetheris.protocol.planning.contract import ContractStatus
from aetheris.protocol.planning.outcome import step_status
from aetheris.views import standing
from tests.testkit import histories as h

ASKED = submissions.SubmissionRequest("job-1", "ann", "acme", None)
PAY = RegistryEntry(
    name="pay",
    version="1",
    schema={
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "currency": {"type": "string", "default": "EUR"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
    schema_hash="s",
    effect_class=EffectClass.OPAQUE,
)


MODELS = {"fast": ModelEntry(name="fast", provider_model="openai:m")}


def submit(body: Any) -> Submit:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return submissions.submit_command(raw, ASKED, {"pay": PAY}, MODELS)


def plan(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"nodes": [{"tool": "pay", "args": {"amount": 1}} | node for node in nodes]}}


BAD: dict[str, tuple[Any, str]] = {
    "workflow": ({"plan": {"nodes": [{"id": "a", "kind": "workflow", "tool": "pay"}]}}, "plan.nodes[0].tool"),
    "cycle": (plan({"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}), "plan.nodes[0].depends_on"),
    "self": (plan({"id": "a", "depends_on": ["a"]}), "plan.nodes[0].depends_on"),
    "dangling dependency": (plan({"id": "a", "depends_on": ["x"]}), "plan.nodes[0].depends_on[0]"),
    "dangling reference": (plan({"id": "a", "args": {"amount": {"$ref": "x#/n"}}}), "plan.nodes[0].args/amount"),
    "twice": (plan({"id": "a"}, {"id": "a"}), "plan.nodes[1].id"),
    "unknown tool": (plan({"id": "a", "tool": "fly"}), "plan.nodes[0].tool"),
    "wrong type": (plan({"id": "a", "args": {"amount": "much"}}), "plan.nodes[0].args/amount"),
    "missing argument": (plan({"id": "a", "args": {}}), "plan.nodes[0].args"),
    "unknown argument": (plan({"id": "a", "args": {"amount": 1, "to": "me"}}), "plan.nodes[0].args"),
    "unknown kind": (plan({"id": "a", "kind": "dance"}), "plan.nodes[0].kind"),
    "no model": (plan({"id": "a", "kind": "llm", "args": {"prompt": "hi"}}), "plan.nodes[0].args/model"),
    "unknown model": (
        plan({"id": "a", "kind": "llm", "args": {"model": "slow", "prompt": "hi"}}),
        "plan.nodes[0].args/model",
    ),
    "tools for a plan's model": (
        plan({"id": "a", "kind": "llm", "args": {"model": "fast", "prompt": "hi", "tools": {}}}),
        "plan.nodes[0].args/tools",
    ),
    "bad id": (plan({"id": "a:b"}), "plan.nodes[0].id"),
    "unknown node field": (plan({"id": "a", "edges": []}), "plan.nodes[0].edges"),
    "no node": ({"plan": {"nodes": []}}, "plan.nodes"),
    "nodes is no list": ({"plan": {"nodes": 7}}, "plan.nodes"),
    "no nodes": ({"plan": {}}, "plan.nodes"),
    "plan is no object": ({"plan": []}, "plan"),
    "no plan": ({}, "plan"),
    "no plan at all": (b"", "plan"),
    "goal without tools": ({"goal": "get rich"}, "tools"),
    "goal and plan": ({"goal": "get rich", "tools": [], "plan": {}}, "plan"),
    "goal with an unknown tool": ({"goal": "get rich", "tools": ["pay", "steal"]}, "tools[1]"),
    "goal with an unknown model": ({"goal": "get rich", "tools": [], "model": "slow"}, "model"),
    "goal with an unknown limit": ({"goal": "get rich", "tools": [], "limits": {"time": 1}}, "limits.time"),
    "goal with no turns": ({"goal": "get rich", "tools": [], "limits": {"turns": 0}}, "limits.turns"),
    "goal with pins": ({"goal": "get rich", "tools": {"pay": {"irreversible": False}}}, "tools"),
    "tools beside a plan": (plan({"id": "a"}) | {"tools": ["pay"]}, "tools"),
    "unknown field": ({"plam": {}}, "plam"),
    "no object": ([], "body"),
    "not JSON": (b'{"plan": ', "body"),
    "not UTF-8": (b'{"plan": "\xff"}', "body"),
    "duplicate key": (b'{"plan": {}, "plan": {}}', "plan"),
    "NaN": (b'{"plan": {"nodes": [{"id": "a", "tool": "pay", "args": {"amount": NaN}}]}}', "body"),
    "number too large": (plan({"id": "a", "args": {"amount": 2**53}}), "plan.nodes[0].args.amount"),
    "lone surrogate": (b'{"agent": "\\ud800"}', "agent"),
    "too large": ({"plan": {"nodes": [], "x": "y" * 2_000_000}}, "plan"),
    "too deep": (b'{"options": {"a": ' + b"[" * 200 + b"]" * 200 + b"}}", "body"),
    "bottomless": (b"[" * 100_000, "body"),
}


@pytest.mark.parametrize(("body", "field"), BAD.values(), ids=BAD.keys())
def test_bad_input_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submit(body)
    assert refused.value.field == field
    assert refused.value.body()["error"]["details"]["field"] == field


def test_a_goal_is_planned_by_a_model_with_the_pins_of_the_registry() -> None:
    body = {"goal": "pay ann", "tools": ["p*"], "limits": {"turns": 3}}
    command = submit(body)
    assert (command.goal, command.brief) == ("pay ann", Brief(model="fast", tools=("pay",), limits=Limits(turns=3)))
    assert command.plan is not None
    assert command.plan["tools"]["pay"]["schema_hash"] == PAY.schema_hash
    assert [(node["id"], node["kind"]) for node in command.plan["nodes"]] == [("goal", "workflow")]
    own = {"goal": PAY.model_copy(update={"name": "goal"}), "pay": PAY}
    taken = submissions.submit_command(json.dumps(body | {"tools": ["*"]}).encode(), ASKED, own, MODELS)
    assert taken.brief is not None
    assert taken.brief.tools == ("pay",), "its own workflow is offered to no model"
    with pytest.raises(BadRequestProblem, match="goal: no model is configured"):
        submissions.submit_command(json.dumps(body).encode(), ASKED, {"pay": PAY}, {})


def test_a_refusal_never_repeats_the_value() -> None:
    with pytest.raises(BadRequestProblem) as refused:
        submit(plan({"id": "a", "args": {"amount": "s3cret"}}))
    assert "s3cret" not in json.dumps(refused.value.body())


def test_pins_come_from_the_registry_alone() -> None:
    forged = {"pay": {"version": "9", "schema_hash": "x", "effect_class": "pure"}}
    body = plan({"id": "a"})
    body["plan"]["tools"] = forged
    taken = submit(body).plan
    assert taken is not None
    assert taken["tools"]["pay"]["version"] == "1"
    assert taken["tools"]["pay"]["effect_class"] == "opaque"
    assert taken["nodes"][0]["args"] == {"amount": 1, "currency": "EUR"}


def test_request_hash_is_of_the_request_alone() -> None:
    one = submit(b'{"plan": {"nodes": [{"id": "a", "tool": "pay", "args": {"amount": 100}}]}}')
    same = submit(b'{ "plan":{"nodes":[{"tool":"pay","id":"a","args":{"amount":100.0}}]}}')
    other = submit(b'{"plan": {"nodes": [{"id": "a", "tool": "pay", "args": {"amount": 101}}]}}')
    assert one.request_hash == same.request_hash != other.request_hash


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"verdict": "maybe", "evidence": "e"}', "verdict"),
        (b'{"verdict": "retry", "evidence": ""}', "evidence"),
        (b'{"verdict": "retry"}', "evidence"),
    ],
)
def test_bad_verdicts(raw: bytes, field: str) -> None:
    with pytest.raises(BadRequestProblem) as refused:
        bodies.read(ResolveBody, raw)
    assert refused.value.field == field


def view(*events: ev.Event) -> dict[str, Any]:
    return standing.job_view(h.fold(*events), "2026-01-01T00:00:00.000000Z")


GRAPH = h.planned(h.graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))


def test_steps_follow_the_log() -> None:
    assert [step["state"] for step in view(GRAPH)["steps"]] == ["pending", "pending"]
    running = view(GRAPH, h.started("a", "n1"))
    assert running["status"] == "running"
    assert running["steps"][0]["state"] == "running"
    done = view(GRAPH, h.started("a", "n1"), h.finished("a", "n1", result={"x": 1}))
    assert done["steps"][0] == {
        "node_id": "a",
        "tool": "act",
        "state": "completed",
        "attempts": 1,
        "effect": "confirmed",
        "via": "executor",
        "execution_id": done["steps"][0]["execution_id"],
    }


def test_a_parked_step_says_why_and_what_to_do() -> None:
    parked = h.about(ev.InvocationParked, "a", invocation_id="n1", reason="not found, try may still act")
    seen = view(GRAPH, h.started("a", "n1"), parked)
    assert seen["status"] == "waiting"
    assert seen["steps"][0]["state"] == "waiting"
    assert "not found, try may still act" in seen["why"]
    assert "not_executed" in seen["why"]


def test_a_step_names_its_request_for_as_long_as_it_may_be_answered() -> None:
    bound: dict[str, Any] = {"args_hash": "h", "tool_version": "1", "rule": "pay"}
    asked = h.about(ev.ApprovalRequested, "a", form={"title": "Pay?"}, **bound)
    waiting = h.about(ev.JobWaiting, "a", wait_type="approval")
    decided = h.about(ev.ApprovalDecided, "a", decision=Decision.APPROVE, approver="bob", **bound)
    stopping = ev.JobStopping(job_id=h.JOB, by="ann", reason="cancelled", up_to_revision=0)

    def named(*events: ev.Event) -> list[str | None]:
        return [step.get("request_id") for step in view(GRAPH, *events)["steps"]]

    assert named(asked, waiting) == [request_id(h.JOB, "a", h.key_of("a")), None]
    assert named(asked, waiting, decided) == [None, None]
    assert named(asked, waiting, stopping) == [None, None]
    assert named(asked, waiting, ev.JobFailed(job_id=h.JOB, error="e")) == [None, None]
    plan = h.planned(h.graph({"id": "a", "kind": "human", "tool": None, "form": {"title": "?", "fields": []}}))
    form = h.about(ev.JobWaiting, "a", tool="human", wait_type="human", form={"title": "?"})
    (step,) = view(plan, form)["steps"]
    assert step["request_id"] == request_id(h.JOB, "a", h.key_of("a", tool="human"))
    signal = h.planned(h.graph({"id": "a", "kind": "wait", "tool": None, "wait": {"key": "k"}}))
    (step,) = view(signal, h.about(ev.JobWaiting, "a", tool="wait", wait_type="signal"))["steps"]
    assert (step["state"], "request_id" in step) == ("waiting", False)


def test_ends() -> None:
    assert view(GRAPH, ev.JobCompleted(job_id=h.JOB, result={"a": 1}))["result"] == {"a": 1}
    failed = view(GRAPH, ev.JobFailed(job_id=h.JOB, error="a failed"))
    assert (failed["status"], failed["error"]) == ("failed", "a failed")
    assert view(GRAPH, ev.JobCancelled(job_id=h.JOB, by="ann"))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("policy", ContractStatus.REJECTED),
        ("expired", ContractStatus.CANCELLED),
        ("cancelled", ContractStatus.CANCELLED),
    ],
)
def test_rejections(reason: str, status: ContractStatus) -> None:
    state = h.fold(GRAPH, h.about(ev.InvocationRejected, "a", reason=RejectReason(reason)))
    assert step_status(state.keys[h.key_of("a")]) is status


def test_cancel_of_what_has_ended_conflicts() -> None:
    with pytest.raises(ConflictProblem, match="job_completed"):
        answers.stands_against_cancel(h.fold(GRAPH, ev.JobCompleted(job_id=h.JOB)), compensate=False)
    assert answers.stands_against_cancel(h.fold(GRAPH, ev.JobCancelled(job_id=h.JOB, by="ann")), compensate=True)
    assert not answers.stands_against_cancel(h.fold(GRAPH), compensate=True)
    asked = h.fold(GRAPH, ev.CancelRequested(job_id=h.JOB, by="ann"))
    assert answers.stands_against_cancel(asked, compensate=False)
    with pytest.raises(ConflictProblem, match="without compensation"):
        answers.stands_against_cancel(asked, compensate=True)


def test_a_pause_is_answered_by_its_own_number_and_refused_where_nothing_would_be_held() -> None:
    number = b'{"number": 2}'
    assert answers.answers_pause("job_paused", 2, answers.observed_event(record("job_paused", "1", 0, number)))
    assert not answers.answers_pause("job_paused", 1, answers.observed_event(record("job_paused", "1", 0, number)))
    assert not answers.answers_pause("job_resumed", 2, answers.observed_event(record("job_paused", "1", 0, number)))
    for kind in ("cancel_requested", "job_failed"):
        with pytest.raises(ConflictProblem):
            answers.answers_pause("job_paused", 2, answers.observed_event(record(kind, "1", 0, b"{}")))
    paused = ev.JobPaused(job_id=h.JOB, number=1, by="ann")
    assert answers.pause_to_end(h.fold(GRAPH, paused)) == 1
    answers.check_pausable(h.fold(GRAPH, paused))
    for events in ((ev.JobCompleted(job_id=h.JOB),), (ev.CancelRequested(job_id=h.JOB, by="ann"),)):
        with pytest.raises(ConflictProblem):
            answers.check_pausable(h.fold(GRAPH, *events))
        with pytest.raises(ConflictProblem):
            answers.pause_to_end(h.fold(GRAPH, paused, *events))


@pytest.mark.parametrize(
    ("events", "verdict", "resolvable"),
    [
        ([h.started("a", "n1")], "happened", True),
        ([h.started("a", "n1")], "not_executed", False),
        ([h.started("a", "n1")], "retry", False),
        ([h.started("a", "n1"), h.about(ev.InvocationParked, "a", invocation_id="n1", reason="r")], "retry", True),
        ([h.started("a", "n1"), h.finished("a", "n1")], "happened", False),
    ],
)
def test_only_what_is_in_doubt_is_resolvable(events: list[ev.Event], verdict: str, resolvable: bool) -> None:
    state = h.fold(GRAPH, *events).keys[h.key_of("a")]
    if resolvable:
        answers.check_resolvable(state, verdict)
    else:
        with pytest.raises(ConflictProblem):
            answers.check_resolvable(state, verdict)


def record(event_type: str, event_id: str, offset: int, payload: bytes = b"{}") -> Record:
    headers = (("ce_id", event_id.encode()), ("ce_type", f"io.aetheris.{event_type}.v1".encode()))
    return Record("t", 0, offset, 0, b"job-1", headers, payload)


def test_what_has_no_id_is_never_a_repeat() -> None:
    numbers = Sequence()
    assert [next_logged_event(numbers, record("x", "", offset)).sequence for offset in (0, 1)] == [1, 2]


def test_what_is_no_json_is_shown_as_bytes() -> None:
    event = next_logged_event(Sequence(), record("x", "1", 0, b"\xff"))
    assert wire.event_view(1, event)["data"] == {"$raw": "/w=="}


FINISHED = h.finished("a", "n1").model_dump(mode="json", exclude_none=True)
PAYLOADS: dict[str, tuple[str, bytes, str | None]] = {
    "as it lies in the log": ("job_created", b"", "status"),
    "text": ("tool_invocation_finished", json.dumps(FINISHED | {"usage": {"model": "m"}}).encode(), "text"),
    "result": ("tool_invocation_finished", json.dumps(FINISHED | {"result": "é\u2028"}).encode(), "tool_result"),
    "raw line end": ("job_completed", b'{"job_id":\n\r\n"job-1"}', "done"),
    "form": ("job_waiting", b'{"job_id":"job-1","wait_type":"human","form":{"id":"r"}}', "ecs"),
    "no form": ("job_waiting", b'{"job_id":"job-1","wait_type":"timer"}', "status"),
    "of no known type": ("nothing_known", b'{"job_id":"job-1","said":"\\ud800"}', None),
    "no JSON": ("job_completed", b'{"job_id":"job-1"}\n\ndata: x', None),
    "not UTF-8": ("job_completed", b'{"job_id":"job-1","x":"\xff"}', None),
}


@pytest.mark.parametrize(("event_type", "payload", "name"), PAYLOADS.values(), ids=PAYLOADS)
def test_a_streamed_event_is_its_view_on_one_line(event_type: str, payload: bytes, name: str | None) -> None:
    given = payload or h.created().model_dump_json(exclude_none=True).encode()
    event = next_logged_event(Sequence(), record(event_type, "1", 7, given))
    *lines, end, behind = wire.sse_bytes(wire.Moved(3, event)).split(b"\n")
    fields = dict(line.split(b": ", 1) for line in lines)
    assert (end, behind, fields.pop(b"id")) == (b"", b"", b"3")
    assert json.loads(fields.pop(b"data")) == wire.event_view(3, event)
    assert fields == ({b"event": name.encode()} if name is not None else {})


def test_answers_of_the_log() -> None:
    ours = answers.observed_event(record("cancel_requested", "1", 0, b'{"caused_by": "c1"}'))
    done = answers.observed_event(record("job_completed", "2", 1, b"{}"))
    other = answers.observed_event(record("tool_invocation_finished", "3", 2, b'{"idempotency_key": "k"}'))
    assert answers.answers_cancel("c1", ours)
    assert not answers.answers_cancel("c1", other)
    with pytest.raises(ConflictProblem):
        answers.answers_cancel("c1", done)
    with pytest.raises(ConflictProblem):
        answers.answers_resolve("c1", "k", other)
    assert not answers.answers_resolve("c1", "k2", other)


@pytest.mark.parametrize(
    ("status", "age_s", "due", "over"),
    [
        ("completed", 59, False, False),
        ("completed", 60, True, False),
        ("failed", 600, True, False),
        ("cancelled", 601, False, True),
        ("running", 100, False, False),
        ("waiting", 100, False, False),
        ("submitted", 100, False, False),
        ("completed", -5, False, False),
    ],
)
def test_an_ended_job_is_looked_at_while_it_is_neither_new_nor_old(
    status: str, age_s: int, due: bool, over: bool
) -> None:
    schedule = reconciliations.Schedule(timedelta(seconds=60), timedelta(seconds=600))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    created = now - timedelta(seconds=age_s)
    assert (schedule.due(status, created, now), schedule.over(created, now)) == (due, over)


@pytest.mark.parametrize(
    ("asked", "silent", "confirmed", "word", "ok"),
    [
        (2, 0, 2, "confirmed", True),
        (2, 3, 2, "confirmed", True),
        (2, 0, 1, "incomplete", False),
        (0, 1, 0, "not_asked", False),
        (0, 0, 0, "nothing_to_compare", True),
    ],
)
def test_a_reconciliation_that_asked_nobody_holds_nothing(
    asked: int, silent: int, confirmed: int, word: str, ok: bool
) -> None:
    reported = [{"event": "effect_confirmed"}] * confirmed
    found = reconciliations.answer("job-1", "cmd-1", reconciliations.ResourceCounts(asked, silent), reported)
    assert (found.verdict, found.ok, found.unverifiable) == (word, ok, silent)
