"""What a continuation adopts, runs and refuses: the pure part (docs/continue.md)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from aetheris.gateway.core import requests, submissions
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem
from aetheris.planner.core.creations import creation_group
from aetheris.protocol.base.keys import external_key
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Submit
from aetheris.protocol.messages.event_values import BlobRef
from aetheris.protocol.plan.graph import EffectClass
from aetheris.protocol.planning.continuation import MAX_CONTINUED, EndedJob, unfounded
from aetheris.protocol.planning.invocation import invocation
from tests.testkit import histories as h
from tests.testkit.principals import person
from tests.testkit.tries import try_of

REGISTRY = {
    name: RegistryEntry(
        name=name,
        version="1",
        schema={"type": "object"},
        schema_hash="s",
        effect_class=EffectClass.PURE if name == "look" else EffectClass.OPAQUE,
        irreversible=name == "pay",
    )
    for name in ("act", "pay", "look")
}
ASKED = submissions.SubmissionRequest("job-2", "bob", h.TENANT, "continues job-1", may_settle=True)
FAILED = ev.JobFailed(job_id=h.JOB, error="b failed", node_id="b")


def done(node: str, tool: str = "act", result: Any = None, **more: Any) -> list[ev.Event]:
    """A step that settled as a success."""
    args = more.get("args")
    ready = [h.about(ev.PolicyAllowed, node, args=args, tool=tool, args_hash="a", tool_version="1", rule="r")]
    invocation_id = f"n-{node}"
    return [
        *(ready if tool == "pay" else []),
        h.started(node, invocation_id, args=args, tool=tool),
        h.finished(node, invocation_id, args=args, tool=tool, result=result),
    ]


def failed(node: str, via: str = "executor") -> list[ev.Event]:
    invocation_id = f"n-{node}"
    parked = [h.about(ev.InvocationParked, node, invocation_id=invocation_id, reason="?")] if via == "human" else []
    return [h.started(node, invocation_id), *parked, h.finished(node, invocation_id, "permanent_failure", via=via)]


def job(*events: ev.Event, nodes: tuple[dict[str, Any], ...] = (), end: ev.Event = FAILED) -> JobState:
    use = {"id": "b", "args": {"x": {"$ref": "a#/x"}}, "depends_on": ["a"]}
    pins = {"act": {}, "pay": {"irreversible": True}, "look": {"effect_class": "pure"}}
    return h.fold(h.planned(h.graph(*(nodes or ({"id": "a"}, use)), **pins)), *events, end)


def asked_for(state: JobState, plan: Any = None, seal: ev.JobSealed | None = h.SEAL, settle: Any = None) -> Submit:
    body: dict[str, Any] = {} if plan is None else {"plan": {"nodes": plan}}
    raw = json.dumps(body | ({} if settle is None else {"settle": settle})).encode()
    return submissions.continue_command(
        raw, replace(ASKED, principal=person(ASKED.by)), EndedJob(state, seal), REGISTRY, {}
    )


def nodes_of(command: Submit) -> list[dict[str, Any]]:
    return (command.plan or {})["nodes"]


def test_what_succeeded_is_adopted_and_its_result_stands_in_what_is_left() -> None:
    command = asked_for(job(*done("a", result={"x": 7}), *failed("b")))
    (left,) = nodes_of(command)
    assert (left["id"], left["args"], left.get("depends_on", [])) == ("b", {"x": 7}, [])
    assert command.continues is not None
    (adopted,) = command.continues.adopted
    assert (adopted.node_id, adopted.invocation_id, adopted.job_id) == ("a", try_of("n-a"), h.JOB)
    assert (adopted.idempotency_key, adopted.result_hash) == (h.key_of("a"), h.digest({"x": 7}))
    assert (command.continues.job_id, command.continues.seal.root) == (h.JOB, "r")
    created, _ = [fact.event for fact in creation_group(command, "cmd").facts]
    assert isinstance(created, ev.JobCreated)
    assert created.continues == command.continues


@pytest.mark.parametrize("via", ["ledger", "human-cancelled", "partial"])
def test_an_unsure_step_needs_its_human_first(via: str) -> None:
    last = failed("b", "ledger")
    if via == "partial":
        last = [h.started("b", "n-b"), h.finished("b", "n-b", "compensatable_failure")]
    if via == "human-cancelled":
        last = failed("b", "human")
        last[-1] = last[-1].model_copy(update={"error": "cancelled"})
    nodes = ({"id": "a"}, {"id": "b"})
    with pytest.raises(ConflictProblem) as refused:
        asked_for(job(*done("a"), *last, nodes=nodes))
    assert (refused.value.code, refused.value.details["nodes"]) == ("unsure", ["b"])


def test_an_unsure_step_is_settled_by_who_continues_and_never_by_who_submitted_it() -> None:
    nodes = ({"id": "a", "tool": "pay"}, {"id": "b", "args": {"x": {"$ref": "a#/x"}}})
    paid = done("a", "pay")
    paid[-1] = h.finished("a", "n-a", "permanent_failure", via="ledger", tool="pay")
    lost, known = job(*paid, nodes=nodes), {"verdict": "happened", "evidence": "asked the bank", "result": {"x": 7}}
    command = asked_for(lost, settle={"a": known})
    (left,) = nodes_of(command)
    assert (left["id"], left["args"]) == ("b", {"x": 7})
    assert command.continues is not None
    ((adopted,), (action,)) = command.continues.adopted, command.continues.settled
    assert (adopted.node_id, adopted.result_hash, adopted.content_key is None) == ("a", h.digest({"x": 7}), False)
    assert (action.verdict, action.evidence, action.invocation_id) == ("happened", "asked the bank", try_of("n-a"))
    assert unfounded(command, EndedJob(lost, h.SEAL)) is None
    denied = asked_for(lost, settle={"a": {"verdict": "not_executed", "evidence": "no such payment"}})
    assert [node["id"] for node in nodes_of(denied)] == ["a", "b"]
    assert denied.continues is not None
    assert denied.continues.adopted == ()
    assert unfounded(denied, EndedJob(lost, h.SEAL)) is None
    with pytest.raises(ConflictProblem) as refused:
        asked_for(lost, settle={"b": known})
    assert refused.value.code == "unsure"
    with pytest.raises(ConflictProblem) as refused:
        asked_for(lost, settle={"a": known, "b": known})
    assert refused.value.code == "not_unsure"
    for settle in ({"a": {"verdict": "retry", "evidence": "x"}}, {"a": {"verdict": "happened"}}):
        with pytest.raises(BadRequestProblem):
            asked_for(lost, settle=settle)
    own = replace(ASKED, by=lost.created.submitted_by)
    raw = json.dumps({"settle": {"a": known}}).encode()
    with pytest.raises(ForbiddenProblem):
        submissions.continue_command(raw, own, EndedJob(lost, h.SEAL), REGISTRY, {})
    forged = command.model_copy(update={"by": lost.created.submitted_by})
    assert "somebody else must" in str(unfounded(forged, EndedJob(lost, h.SEAL)))
    silent = command.model_copy(update={"continues": command.continues.model_copy(update={"settled": ()})})
    assert "nobody knows" in str(unfounded(silent, EndedJob(lost, h.SEAL)))


def test_no_word_makes_whole_what_was_done_in_part() -> None:
    part = [h.started("b", "n-b"), h.finished("b", "n-b", "compensatable_failure")]
    state = job(*done("a"), *part, nodes=({"id": "a"}, {"id": "b"}, {"id": "c"}))
    with pytest.raises(ConflictProblem) as refused:
        asked_for(state, settle={"b": {"verdict": "happened", "evidence": "seen"}})
    assert refused.value.code == "unsure"


def test_what_a_human_found_not_executed_is_run_again() -> None:
    nodes = ({"id": "a"}, {"id": "b"})
    command = asked_for(job(*done("a"), *failed("b", "human"), nodes=nodes))
    assert [node["id"] for node in nodes_of(command)] == ["b"]


def test_what_was_undone_counts_as_not_done() -> None:
    nodes = ({"id": "a"}, {"id": "b"})
    end = FAILED.model_copy(update={"compensated": ("a",)})
    command = asked_for(job(*done("a"), *failed("b"), nodes=nodes, end=end))
    assert [node["id"] for node in nodes_of(command)] == ["a", "b"]


@pytest.mark.parametrize(
    "changed", [{"args": {"n": 2}}, {"tool": "look"}, {"kind": "timer", "tool": None, "wait": {"timeout_s": 1}}]
)
def test_a_settled_step_is_not_changed(changed: dict[str, Any]) -> None:
    state = job(*done("a", args={"n": 1}), *failed("b"), nodes=({"id": "a", "args": {"n": 1}}, {"id": "b"}))
    kept = {"id": "a", "tool": "act", "args": {"n": 1}}
    assert [node["id"] for node in nodes_of(asked_for(state, [kept, {"id": "c", "tool": "act"}]))] == ["c"]
    with pytest.raises(ConflictProblem) as refused:
        asked_for(state, [kept | changed, {"id": "c", "tool": "act"}])
    assert (refused.value.code, refused.value.details["nodes"]) == ("step_changed", ["a"])


def test_what_cannot_be_undone_is_not_done_again_under_another_name_or_by_a_later_continuation() -> None:
    state = job(
        *done("a", "pay", args={"n": 1}),
        *failed("b"),
        nodes=({"id": "a", "tool": "pay", "args": {"n": 1}}, {"id": "b"}),
    )
    again = {"id": "z", "tool": "pay", "args": {"n": 1}}
    unknown = {"id": "z", "tool": "pay", "args": {"n": {"$ref": "y#/n"}}}
    for plan in ([again], [{"id": "y", "tool": "look"}, unknown]):
        with pytest.raises(ConflictProblem) as refused:
            asked_for(state, plan)
        assert (refused.value.code, refused.value.details["duplicate_of"]) == ("duplicate_of", "a")
    assert asked_for(state, [again | {"occurrence": 2}])
    given = job(
        *done("a", "pay", args={"n": {"of": 1}}),
        *done("c", result={"x": {"of": 1}, "y": {"of": 2}}),
        *failed("b"),
        nodes=({"id": "a", "tool": "pay", "args": {"n": {"of": 1}}}, {"id": "c"}, {"id": "b"}),
    )
    with pytest.raises(ConflictProblem, match="say its occurrence"):
        asked_for(given, [again | {"args": {"n": {"$ref": "c#/x"}}}])
    assert asked_for(given, [again | {"args": {"n": {"$ref": "c#/y"}}}])
    assert asked_for(state, [again | {"args": {"n": 2}}])
    second = job(*failed("b"), nodes=({"id": "b"},))
    second.created = second.created.model_copy(
        update={"continues": asked_for(state, [{"id": "b", "tool": "act"}]).continues}
    )
    for plan in ([again], [again | {"id": "a"}]):
        with pytest.raises(ConflictProblem, match=r"settled in the earlier job|is, or may become"):
            asked_for(second, plan)
    carried = asked_for(second).continues
    assert carried is not None
    assert [one.node_id for one in carried.adopted] == ["a"]


def test_what_cannot_be_continued_is_refused_by_name() -> None:
    whole = job(*done("a", result={"x": 1}), *failed("b"))
    ended = job(*done("a", result={"x": 1}), end=ev.JobCompleted(job_id=h.JOB))
    asked = h.fold(h.planned(h.graph({"id": "a"})))
    for state, seal, code in (
        (whole, None, "not_sealed"),
        (ended, h.SEAL, "illegal_transition"),
        (asked, h.SEAL, "illegal_transition"),
    ):
        with pytest.raises(ConflictProblem) as refused:
            asked_for(state, seal=seal)
        assert refused.value.code == code
    with pytest.raises(ConflictProblem) as refused:
        asked_for(whole, [{"id": "a", "tool": "act"}])
    assert refused.value.code == "nothing_left"
    with pytest.raises(BadRequestProblem):
        asked_for(whole, [{"id": "c", "tool": "act", "args": {"x": {"$ref": "a#/none"}}}])


LARGE = BlobRef(sha256="5" * 64, size=70_000)


def large(node: str) -> list[ev.Event]:
    """A step whose result is too large for a record."""
    *before, end = done(node)
    assert isinstance(end, ev.ToolInvocationFinished)
    return [*before, end.model_copy(update={"result": None, "result_ref": LARGE, "output_hash": "l"})]


@pytest.mark.parametrize("result", [{"x": {"$ref": "b#/y"}}, {"x": [{"y": {"$ref": "a#"}}]}, {"x": {"y": 1}}])
def test_a_result_that_would_be_read_otherwise_in_a_plan_is_referred_to(result: Any) -> None:
    """It is data: neither a reference of the new plan, nor filled with the defaults of a schema."""
    state = job(*done("a", result=result), *failed("b"))
    command = asked_for(state)
    (left,) = nodes_of(command)
    assert (left["args"], left.get("depends_on", [])) == ({"x": {"$ref": f"{h.JOB}/a#/x"}}, [])
    assert command.continues is not None
    assert command.continues.uses == ()
    assert command.continues.results == {f"{h.JOB}/a": result}
    assert unfounded(command, EndedJob(state, h.SEAL)) is None
    created, planned = [fact.event for fact in creation_group(command, "cmd").facts]
    assert isinstance(created, ev.JobCreated)
    taken = h.fold_of(created, planned)
    entry = taken.entry("b")
    assert entry is not None
    assert invocation(taken, entry).args == {"x": result["x"]}


def test_a_large_result_is_referred_to_where_it_lies() -> None:
    state = job(*large("a"), *failed("b"))
    command = asked_for(state)
    (left,) = nodes_of(command)
    assert left["args"] == {"x": {"$ref": f"{h.JOB}/a#/x"}}
    assert command.continues is not None
    assert (command.continues.given, command.continues.uses) == ((), ())
    assert command.continues.adopted[0].result_ref == LARGE
    assert unfounded(command, EndedJob(state, h.SEAL)) is None
    moved = command.continues.adopted[0].model_copy(update={"result_ref": LARGE.model_copy(update={"size": 1})})
    forged = command.continues.model_copy(update={"adopted": (moved,)})
    assert unfounded(command.model_copy(update={"continues": forged}), EndedJob(state, h.SEAL)) is not None


def test_what_is_referred_to_goes_on_through_the_chain_and_nothing_else_does() -> None:
    """The next continuation is given the result as well; one that the job between never had is refused by name."""
    nodes = ({"id": "a"}, {"id": "c"}, {"id": "b", "args": {"x": {"$ref": "a#"}}})
    first = asked_for(job(*done("a", result={"x": 7}), *done("c", result={"x": 8}), *failed("b"), nodes=nodes))
    created, planned = [fact.event for fact in creation_group(first, "cmd").facts]
    assert isinstance(created, ev.JobCreated)
    second = h.fold_of(created, planned)
    second.terminal = FAILED.model_copy(update={"job_id": "job-2"})
    for plan in (None, [{"id": "b", "tool": "act", "args": {"x": {"$ref": "a#"}}}]):
        third = asked_for(second, plan)
        assert nodes_of(third)[0]["args"] == {"x": {"$ref": f"{h.JOB}/a#"}}
        assert third.continues is not None
        assert third.continues.results == {f"{h.JOB}/a": {"x": 7}}
        assert unfounded(third, EndedJob(second, h.SEAL)) is None
    with pytest.raises(BadRequestProblem, match="the result of c is in job job-1 alone"):
        asked_for(second, [{"id": "b", "tool": "act", "args": {"x": {"$ref": "c#/x"}}}])
    with pytest.raises(BadRequestProblem, match="which the job has not adopted"):
        asked_for(second, [{"id": "b", "tool": "act", "args": {"x": {"$ref": "job-0/a#"}}}])
    repeated = [{"id": "a", "tool": "act"}, {"id": "b", "tool": "act"}]
    assert [node["id"] for node in nodes_of(asked_for(second, repeated))] == ["b"]
    with pytest.raises(ConflictProblem, match="may not be changed"):
        asked_for(second, [{"id": "a", "tool": "look"}, {"id": "b", "tool": "act"}])


def test_what_undoes_a_step_refers_to_what_was_done_before_it_too() -> None:
    undo = {"tool": "act", "args": {"x": {"$ref": "a#/x"}, "y": {"$ref": "b#/y"}}}
    last = {"id": "b", "depends_on": ["a"], "compensate_with": undo}
    command = asked_for(job(*large("a"), *failed("b"), nodes=({"id": "a"}, last)))
    (left,) = nodes_of(command)
    assert left["compensate_with"]["args"] == {"x": {"$ref": f"{h.JOB}/a#/x"}, "y": {"$ref": "b#/y"}}
    created, planned = [fact.event for fact in creation_group(command, "cmd").facts]
    assert isinstance(created, ev.JobCreated)
    assert h.fold_of(created, planned).entry("b") is not None
    stranger = created.model_copy(update={"continues": None})
    assert h.fold_of(stranger, planned).entry("b") is None


def test_sixteen_jobs_continue_each_other_and_no_more() -> None:
    """Each carries on what all before it did, and what the last step refers to."""
    nodes = ({"id": "a0"}, {"id": "b", "args": {"x": {"$ref": "a0#"}}})
    state, done_so_far = job(*done("a0", result={"x": 7}), *failed("b"), nodes=nodes), ["a0"]
    last = {"id": "b", "tool": "act", "args": {"x": {"$ref": f"{h.JOB}/a0#"}}}
    for depth in range(1, MAX_CONTINUED + 1):
        step = {"id": f"a{depth}", "tool": "act"}
        command = asked_for(state, [step, last])
        assert command.continues is not None
        assert command.continues.depth == depth
        assert [one.node_id for one in command.continues.adopted] == done_so_far
        assert command.continues.results == {f"{h.JOB}/a0": {"x": 7}}
        assert unfounded(command, EndedJob(state, h.SEAL)) is None
        created, planned = [fact.event for fact in creation_group(command, "cmd").facts]
        assert isinstance(created, ev.JobCreated)
        name = f"job-{depth + 1}"
        started, end = done(f"a{depth}")
        moved = started.model_copy(update={"external_key": external_key(name, f"a{depth}", 0)})
        ran = [one.model_copy(update={"job_id": name}) for one in (created, planned, moved, end, FAILED)]
        state = h.fold_of(created.model_copy(update={"job_id": name}), *ran[1:])
        done_so_far.append(f"a{depth}")
    with pytest.raises(ConflictProblem) as refused:
        asked_for(state, [{"id": "z", "tool": "act"}])
    assert refused.value.code == "too_many_continued"


def test_what_is_referred_to_has_room_in_a_plan_or_is_refused() -> None:
    nodes = [{"id": f"a{n}"} for n in range(8)]
    last = {"id": "b", "args": {"x": [{"$ref": f"a{n}#"} for n in range(8)]}}
    results = [event for n in range(8) for event in done(f"a{n}", result={"x": "y" * 60_000})]
    with pytest.raises(BadRequestProblem) as refused:
        asked_for(job(*results, *failed("b"), nodes=(*nodes, last)))
    assert (refused.value.code, refused.value.field) == ("invalid_plan", "plan")


def test_more_than_a_birth_has_room_for_is_refused_by_name() -> None:
    """Not as a plan that is too large, which nobody could make smaller."""
    nodes = tuple({"id": f"a{n}"} for n in range(3_000))
    events = [event for n in range(3_000) for event in done(f"a{n}")]
    state = job(*events, *failed("b"), nodes=(*nodes, {"id": "b"}))
    with pytest.raises(ConflictProblem) as refused:
        asked_for(state)
    assert refused.value.code == "too_much_adopted"


@pytest.mark.parametrize(("tool", "occurrence", "refused"), [("pay", 1, True), ("pay", 2, False), ("act", 1, False)])
def test_an_edit_that_makes_what_an_earlier_job_did_is_refused(tool: str, occurrence: int, refused: bool) -> None:
    paid = {"n": 1}
    state = h.fold(h.planned(h.graph({"id": "z", "tool": tool, "args": {"n": 2}}, act={}, pay={"irreversible": True})))
    state.created = h.adopts("a", paid, tool, occurrence=occurrence)
    form = {"context": {"arguments": {"n": 2}, "tool": tool}, "fields": [{"name": "n", "type": "number", "label": "n"}]}
    body: dict[str, Any] = {
        "args": {"n": 2},
        "tool": tool,
        "args_hash": h.args_hash({"n": 2}),
        "tool_version": "1",
        "rule": "r",
    }
    asked = requests.question(h.about(ev.ApprovalRequested, "z", form=form, **body), requests.Owner("acme", "ann"))
    assert asked is not None
    answer = requests.HumanResponse("r", "edit", {"n": 1}, None, person("bob", "acme"))
    schema = {"type": "object"}
    requests.check_edit(state, asked, replace(answer, data={"n": 3}), schema)
    if not refused:
        requests.check_edit(state, asked, answer, schema)
        return
    with pytest.raises(ConflictProblem) as no:
        requests.check_edit(state, asked, answer, schema)
    assert (no.value.code, no.value.details) == ("duplicate_of", {"duplicate_of": "a", "job_id": "job-0"})
