"""Each rule of calls that a body plans, attacked by a history that would break it."""

from typing import Any

import pytest

from aetheris.protocol.base.child_ids import NOTHING_RECORDED, child_id
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.child_calls import MAX_CHILDREN
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, RejectReason
from aetheris.protocol.messages.events import Event
from tests.testkit.body_histories import (
    FLOW,
    GRAPH,
    PARENT,
    accepted,
    asked,
    body,
    call,
    ended,
    first,
    named,
    over,
    pair,
    parked,
    reopened,
    result_of,
    stopping,
    take,
    taken_over,
    with_bodies,
    words,
)
from tests.testkit.body_histories import (
    fold_bodies as fold,
)
from tests.testkit.histories import JOB, about, graph, key_of, planned, started
from tests.testkit.tries import try_of

A, B = {"n": 1}, {"n": 2}


def decided(decision: Decision, *, data: dict[str, Any] | None = None) -> Event:
    """What a human says to the payment p.x with arguments A."""
    said = {"args_hash": args_hash(A), "tool_version": "1", "rule": "r", "approver": "eve", "data": data}
    return about(ev.ApprovalDecided, "p.x", args=A, tool="pay", decision=decision, **said)


# 1. What a body may plan.


def test_a_body_plans_a_call_and_the_revision_stays() -> None:
    job = fold(FLOW, body("b1"), *pair(A))
    assert (job.revision, job.keys[key_of(named(A), A)].status) == (0, KeyStatus.STARTED)


def test_a_superseded_body_plans_nothing() -> None:
    job = taken_over()
    assert not take(job, call("b1", A))
    assert take(job, call("b2", A))


def test_who_was_reopened_plans_nothing_more_and_who_never_was_a_body_neither() -> None:
    job = fold(FLOW, body("b1"), reopened("b1"))
    assert not take(job, call("b1", A))
    assert not take(fold(FLOW, body("b1")), call("made-up", A))
    assert not take(fold(FLOW), call("b1", A))
    assert not take(fold(planned(graph({"id": "p"})), started("p", "b1")), call("b1", A))


def test_nothing_is_planned_behind_a_stop_or_an_end() -> None:
    assert not take(fold(FLOW, body("b1"), stopping()), call("b1", A))
    assert not take(fold(FLOW, body("b1"), ev.JobFailed(job_id=JOB, error="e")), call("b1", A))


@pytest.mark.parametrize(
    "wrong",
    [
        call("b1", A, "unpinned"),
        call("b1", {"x": {"$ref": "q"}}),
        call("b1", A, kind="workflow", tool="flow", node="p.x"),
        call("b1", A, depends_on=["q"]),
        call("b1", A, compensates="q"),
        call("b1", tool=None, kind="wait", node="p.x", wait={"key": "go", "personal": {"/name": "/id"}}),
        call("b1", A, node="q"),
        call("b1", A, node="q.x"),
        call("b1", A, node=named(B)),
        call("b1", A, node="p.x.undo"),
        call("b1", A, compensate_with={"tool": "unpinned", "args": {}}),
        call("b1", A, compensate_with={"tool": "act", "args": {"x": {"$ref": "q"}}}),
        call("b1", A, occurrence=2, node=named(A)),
        call("b1", A).model_copy(update={"node_id": "p.other"}),
        call("b1", A).model_copy(update={"entry": {"id": 1}}),
        call("b1", {"n": 2**60}, node="p.x"),
        call("b1", A, after=[result_of("nobody")]),
    ],
)
def test_what_could_stand_in_no_plan_or_is_not_what_it_is_called_is_not_planned(wrong: ev.CallPlanned) -> None:
    job = fold(FLOW, body("b1"))
    before = dict(job.entries)
    assert not take(job, wrong)
    assert job.entries == before


def test_what_it_builds_on_has_settled_with_just_that_result() -> None:
    job = fold(FLOW, body("b1"), *pair(A), ended("t1", A, result={"ok": 1}))
    assert not take(job, call("b1", B, said=None, after=[result_of("t1", {"ok": 2})]))
    assert take(job, call("b1", B, said=None, after=[result_of("t1", {"ok": 1})]))


def test_a_body_plans_so_many_calls_and_no_more() -> None:
    job = fold(FLOW, body("b1"), call("b1", {"n": 0}))
    assert job.bodies is not None
    job.bodies.of[PARENT].children = MAX_CHILDREN
    assert not take(job, call("b1", A))
    assert take(job, call("b1", {"n": 0}))


def test_what_has_not_begun_may_be_planned_otherwise_and_what_has_begun_may_not() -> None:
    job = fold(FLOW, body("b1"), call("b1", A, node="p.x"))
    assert take(job, call("b1", B, node="p.x"))
    assert start_is_void(job, first("b1", "t1", A, node="p.x")) == "it is not the call that was planned"
    assert take(job, first("b1", "t1", B, node="p.x"))
    assert not take(job, call("b1", A, node="p.x"))
    assert start_is_void(job, first("b1", "t2", A, node="p.x")) is not None


def test_another_bodys_calls_are_its_own() -> None:
    two = graph(*GRAPH["nodes"], {"id": "p2", "kind": "workflow", "tool": "flow"}, **GRAPH["tools"])
    start = started("p2", "c1", tool="flow")
    job = fold(with_bodies(two), body("b1"), start, call("b1", A, node="p.x"))
    assert not take(job, call("c1", A, node="p.x", parent="p2"))


def test_what_a_human_has_said_yes_to_is_planned_no_more_otherwise() -> None:
    asked_for = about(
        ev.ApprovalRequested,
        "p.x",
        args=A,
        tool="pay",
        args_hash=args_hash(A),
        tool_version="1",
        rule="r",
        form={},
    )
    yes = decided(Decision.APPROVE)
    job = fold(FLOW, body("b1"), call("b1", A, "pay", node="p.x"), asked_for)
    assert take(job, call("b1", A, "pay", node="p.x"))
    assert take(job, yes)
    assert not take(job, call("b1", B, "pay", node="p.x"))
    assert take(job, call("b1", A, "pay", node="p.x"))
    assert take(job, first("b1", "t1", A, "pay", node="p.x"))


def test_an_edit_stands_whoever_plans_the_call_again() -> None:
    edit = decided(Decision.EDIT, data=B)
    done = about(ev.InvocationRejected, "p.x", args=A, tool="pay", reason=RejectReason.EDITED)
    allowed = about(ev.PolicyAllowed, "p.x", args=B, tool="pay", args_hash=args_hash(B), tool_version="1", rule="r")
    job = fold(FLOW, body("b1"), call("b1", A, "pay", node="p.x"), edit, reopened("b1"), body("b2", token=2))
    assert take(job, call("b2", A, "pay", node="p.x"))
    assert take(job, done)
    for event in (reopened("b2"), body("b3", token=3), call("b3", A, "pay", node="p.x")):
        assert take(job, event)
    assert not take(job, call("b3", B, "pay", node="p.x"))
    assert take(job, allowed)
    assert start_is_void(job, first("b3", "t1", A, "pay", node="p.x")) is not None
    assert take(job, first("b3", "t2", B, "pay", node="p.x"))


def test_what_was_refused_is_planned_no_more() -> None:
    """The body has been told so; another call has another id."""
    no = about(ev.InvocationRejected, "p.x", args=A, reason=RejectReason.POLICY)
    job = fold(FLOW, body("b1"), call("b1", A, node="p.x"), no)
    assert not take(job, call("b1", A, node="p.x"))
    assert not take(job, call("b1", B, node="p.x"))


def test_the_place_of_what_undoes_a_call_is_free() -> None:
    taken = graph(*GRAPH["nodes"], {"id": "p.x.undo"}, **GRAPH["tools"])
    job = fold(with_bodies(taken), body("b1"))
    undo = {"tool": "act", "args": {}}
    assert not take(job, call("b1", A, node="p.x", compensate_with=undo))
    assert take(job, call("b1", A, node="p.y", compensate_with=undo))


def test_a_body_plans_nothing_of_anothers_whose_name_begins_with_its_own() -> None:
    two = graph(*GRAPH["nodes"], {"id": "p.a", "kind": "workflow", "tool": "flow"}, **GRAPH["tools"])
    job = fold(with_bodies(two), body("b1"), call("b1", A, node="p.a.x"))
    start = started("p.a", "c1", tool="flow").model_copy(update={"plans": words("c1").plans})
    assert take(job, start)
    assert not take(job, call("c1", A, node="p.a.x", parent="p.a"))
    assert take(job, call("c1", A, node="p.a.y", parent="p.a"))


def test_an_edit_of_a_call_that_was_planned_otherwise_since_changes_nothing() -> None:
    edit = about(
        ev.ApprovalDecided,
        "p.x",
        args=A,
        args_hash=args_hash(A),
        tool_version="1",
        rule="r",
        decision=Decision.EDIT,
        approver="eve",
        data={"n": 3},
    )
    job = fold(FLOW, body("b1"), call("b1", A, node="p.x"), call("b1", B, node="p.x"), edit)
    entry = job.entry("p.x")
    assert entry is not None
    assert entry.node.args == B


def test_two_calls_wait_for_no_signal_of_one_key() -> None:
    wait: dict[str, Any] = {"kind": "wait", "tool": None, "wait": {"key": "paid"}}
    job = fold(FLOW, body("b1"), call("b1", node="p.w1", **wait))
    longer, other = [dict[str, Any](wait, wait=said) for said in ({"key": "paid", "timeout_s": 5}, {"key": "other"})]
    assert not take(job, call("b1", node="p.w2", **wait))
    assert take(job, call("b1", node="p.w1", **longer))
    assert take(job, call("b1", node="p.w1", **other))
    assert take(job, call("b1", node="p.w2", **wait))


def test_who_has_not_the_bodys_word_plans_nothing_in_its_name() -> None:
    """Its invocation_id lies in the log, and so does each word that it has said."""
    job = fold(FLOW, body("b1"))
    said = words("b1")
    for word in (None, "", "0" * 64, said.plans, said.word(1), said.word(0).upper(), try_of("b1")):
        assert not apply(job, call("b1", A).model_copy(update={"word": word}), 9)
    assert take(job, call("b1", A))
    assert not apply(job, call("b1", B, said=None).model_copy(update={"word": said.word(0)}), 9)
    assert take(job, call("b1", B, said=None))


def test_a_word_that_was_said_in_vain_is_used_up() -> None:
    job = fold(FLOW, body("b1"), call("b1", A, "unpinned"))
    assert not apply(job, call("b1", A).model_copy(update={"word": words("b1").word(0)}), 9)
    assert take(job, call("b1", A))


def test_a_body_that_names_no_words_plans_nothing() -> None:
    job = fold(FLOW, body("b1").model_copy(update={"plans": None}))
    assert not take(job, call("b1", A))


# 2. Who starts it first.


def test_a_superseded_body_starts_nothing_first() -> None:
    job = taken_over(call("b1", A))
    assert start_is_void(job, first("b1", "t1", A)) == "its body is not in charge"
    assert start_is_void(job, first(None, "t1", A)) == "another body has planned it"
    assert start_is_void(job, first("b2", "t1", A)) == "another body has planned it"
    assert take(job, call("b2", A))
    assert start_is_void(job, first("b2", "t1", A)) is None
    assert start_is_void(job, first("b1", "t1", A)) == "another body has planned it"


def test_nothing_starts_first_once_its_body_has_ended() -> None:
    job = fold(FLOW, body("b1"), call("b1", A), over("b1"))
    assert start_is_void(job, first("b1", "t1", A)) == "its body is not in charge"


def test_what_was_begun_goes_on_whoever_is_the_body() -> None:
    job = taken_over(*pair(A), ended("t1", A, outcome="retryable_failure"))
    assert take(job, first(None, "t2", A, token=2, attempt=1))


@pytest.mark.parametrize(
    "rests",
    [
        over("b1", "retryable_failure", until=["x"]),
        about(ev.InvocationReopened, PARENT, tool="flow", invocation_id="b1", next_token=0, by="policy"),
    ],
)
def test_what_a_body_has_planned_may_start_until_another_begins(rests: ev.Event) -> None:
    """It sleeps, and waits for approval, say: nobody would wake a body that waits for just this."""
    job = fold(FLOW, body("b1"), call("b1", A), rests)
    assert not take(job, call("b1", B))
    assert start_is_void(job, first("b1", "t1", A)) is None
    assert take(job, body("b2", token=2, attempt=job.keys[key_of(PARENT, tool="flow")].external_attempt - 1))
    assert start_is_void(job, first("b1", "t1", A)) == "its body is not in charge"
    stands = fold(FLOW, body("b1"), call("b1", A), parked("b1"))
    assert start_is_void(stands, first("b1", "t1", A)) == "its body is not in charge"


@pytest.mark.parametrize(
    "other",
    [
        {"idempotency_key": key_of(named(A), B)},
        {"args_hash": args_hash(B)},
        {"tool_name": "read"},
        {"occurrence": 2},
    ],
)
def test_what_starts_is_the_call_that_was_planned(other: dict[str, Any]) -> None:
    job = fold(FLOW, body("b1"), call("b1", A))
    start = first("b1", "t1", A).model_copy(update=other)
    assert start_is_void(job, start) == "it is not the call that was planned"


# 3. The frontier: no second path beside what was recorded.


def test_a_body_asks_for_what_was_recorded_before_it_plans_anything() -> None:
    job = taken_over(*pair(A))
    for said in (None, NOTHING_RECORDED, asked(named(B)), asked(named(A), named(B)), asked(named(A)).upper()):
        assert not take(job, call("b2", B, said=said))
    assert take(job, call("b2", B, said=asked(named(A))))
    assert take(job, call("b2", {"n": 3}, said=None))


def test_what_only_reads_is_planned_whatever_was_not_asked_for() -> None:
    job = taken_over(*pair(A))
    assert not take(job, call("b2", B, "read", said=None, irreversible=True))
    assert not take(job, call("b2", B, "read", said=None, compensate_with={"tool": "act"}))
    assert take(job, call("b2", B, "read", said=None))
    assert take(job, call("b2", node="p.nap", tool=None, kind="timer", wait={"for_s": 1}, said=None))  # type: ignore[arg-type]
    assert take(job, first("b2", "t9", B, "read"))
    assert not take(job, call("b2", {"n": 3}, said=None)), "it has still not asked"
    assert take(job, call("b2", {"n": 3}, said=asked(named(A))))
    assert take(job, call("b2", {"n": 4}, said=None))


def test_the_first_body_says_it_too() -> None:
    assert not take(fold(FLOW, body("b1")), call("b1", A, said=None))


def test_a_call_that_is_void_says_nothing_for_later_ones() -> None:
    job = fold(FLOW, body("b1"), call("b1", A, "unpinned"))
    assert not take(job, call("b1", A, said=None))


def test_what_surely_failed_or_reads_only_need_not_be_asked_for() -> None:
    failed = [*pair(A), ended("t1", A, outcome="permanent_failure")]
    reads = [call("b1", B, "read", said=None), first("b1", "t2", B, "read"), ended("t2", B, "read")]
    waits = [call("b1", {"n": 3}, said=None)]
    assert take(taken_over(*failed, *reads, *waits), call("b2", {"n": 4}))


def test_what_failed_and_may_have_taken_effect_must_be() -> None:
    by_ledger = ended("t1", A, outcome="permanent_failure", via="ledger")
    job = taken_over(*pair(A), by_ledger)
    assert not take(job, call("b2", B))
    assert take(job, call("b2", B, said=asked(named(A))))


def test_what_fails_behind_its_start_must_still_be_asked_for() -> None:
    """The body knows what was recorded at its start, and no more."""
    job = taken_over(*pair(A))
    take(job, ended("t1", A, outcome="permanent_failure"))
    assert not take(job, call("b2", B))
    assert take(job, call("b2", B, said=asked(named(A))))
    later = fold(
        FLOW,
        body("b1"),
        *pair(A),
        reopened("b1"),
        body("b2", token=2),
        ended("t1", A, outcome="permanent_failure"),
        reopened("b2"),
        body("b3", token=3),
    )
    assert take(later, call("b3", B))


def test_who_ends_without_a_call_has_asked_for_what_was_recorded() -> None:
    job = taken_over(*pair(A), ended("t1", A))
    assert not take(job, over("b2"))
    assert not take(job, over("b2", "permanent_failure", said=NOTHING_RECORDED))
    assert take(job, over("b2", said=asked(named(A))))


def test_a_human_lets_one_code_pass_by_what_another_did() -> None:
    job = fold(FLOW, body("b1", code="old"), *pair(A), ended("t1", A), reopened("b1"), body("b2", 2, code="new"))
    assert not take(job, accepted("b2", "new", named(A)))
    assert take(job, parked("b2"))
    assert not take(job, accepted("b1", "new", named(A)))
    assert take(job, accepted("b2", "new", named(A), "q", "p.never"))
    assert not take(job, call("b2", B))
    take(job, reopened("b2", by="human"))
    take(job, body("b3", 3, code="new"))
    assert not take(job, call("b3", B, said=asked(named(A))))
    assert take(job, call("b3", B))
    take(job, reopened("b3"))
    take(job, body("b4", 4, code="old"))
    assert not take(job, call("b4", B))


def test_what_is_recorded_later_is_not_waived() -> None:
    job = fold(FLOW, body("b1", code="new"), call("b1", A), parked("b1"), accepted("b1", "new", named(A)))
    for event in (reopened("b1", by="human"), body("b2", 2, code="new"), call("b2", A), first("b2", "t1", A)):
        assert take(job, event)
    take(job, reopened("b2"))
    take(job, body("b3", 3, code="new"))
    assert not take(job, call("b3", B))


# 6. What can't be undone, again.


def test_an_irreversible_call_again_needs_a_human_or_a_rule_that_says_so() -> None:
    def allowed(**fields: Any) -> Any:
        said = {"args_hash": args_hash(A), "tool_version": "1", "rule": "r"}
        return about(ev.PolicyAllowed, named(A, "pay", 2), args=A, tool="pay", **said, **fields)

    again = call("b1", A, "pay", occurrence=2, said=None)
    start = first("b1", "t2", A, "pay", occurrence=2)
    once = [call("b1", B)]
    job = fold(FLOW, body("b1"), *once, again, allowed())
    assert start_is_void(job, start) == "an irreversible call again, which a human has not approved"
    assert start_is_void(fold(FLOW, body("b1"), *once, again, allowed(repeats="allow")), start) is None
    yes = about(
        ev.ApprovalDecided,
        named(A, "pay", 2),
        args=A,
        tool="pay",
        args_hash=args_hash(A),
        tool_version="1",
        rule="r",
        decision=Decision.APPROVE,
        approver="eve",
    )
    assert start_is_void(fold(FLOW, body("b1"), *once, again, yes), start) is None


def test_the_same_irreversible_call_under_another_id_is_refused() -> None:
    def allowed(node: str) -> Any:
        said = {"args_hash": args_hash(A), "tool_version": "1", "rule": "r"}
        return about(ev.PolicyAllowed, node, args=A, tool="pay", **said)

    job = fold(
        FLOW,
        body("b1"),
        call("b1", A, "pay"),
        allowed(named(A, "pay")),
        first("b1", "t1", A, "pay"),
        call("b1", A, "pay", node="p.again", said=None),
        allowed("p.again"),
    )
    assert start_is_void(job, first("b1", "t2", A, "pay", node="p.again")) is not None


def test_ids_follow_from_content_alone() -> None:
    assert child_id("p", "shop:charge/now", {"a": 1, "b": 2}, 1) == child_id(
        "p", "shop:charge/now", {"b": 2, "a": 1}, 1
    )
    assert child_id("p", "shop:pay/now", {}, 3).startswith("shop-pay-now.")
    assert child_id("p", "t", {}, 1) != child_id("q", "t", {}, 1)
    hidden = {"$hidden": {"c": "a" * 64, "d": "b" * 64, "k": "c" * 32}}
    other = {"$hidden": {"c": "d" * 64, "d": "b" * 64, "k": "c" * 32}}
    assert child_id("p", "t", {"who": hidden}, 1) == child_id("p", "t", {"who": other}, 1)


def test_a_sure_end_of_a_body_says_nothing_of_its_calls() -> None:
    job = fold(FLOW, body("b1"), *pair(A), ended("t1", A), over("b1", "permanent_failure"))
    state = job.keys[key_of(PARENT, tool="flow")]
    assert (state.outcome, state.sure, try_of("b1")) == (Settled.FAILED, True, state.settled_by)
