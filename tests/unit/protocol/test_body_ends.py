"""How bodies end, and what holds for their calls as for others, attacked by histories that would break it."""

from typing import Any

import pytest

from aetheris.protocol.base.child_ids import NOTHING_RECORDED
from aetheris.protocol.fold.revisions import may_compensate, unsure
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import RejectReason
from tests.testkit.body_histories import (
    FLOW,
    GRAPH,
    PARENT,
    body,
    call,
    ended,
    first,
    named,
    over,
    pair,
    parked,
    reopened,
    stopping,
    take,
    taken_over,
    with_bodies,
)
from tests.testkit.body_histories import (
    fold_bodies as fold,
)
from tests.testkit.histories import JOB, about, graph, planned

A, B = {"n": 1}, {"n": 2}


# 4. The end of a body.


@pytest.mark.parametrize("via", ["executor", "late", "catch_up", "human", "probe"])
def test_no_body_ends_over_open_calls(via: str) -> None:
    job = fold(FLOW, body("b1"), *pair(A))
    assert not take(job, over("b1", via=via))
    take(job, ended("t1", A))
    assert take(job, over("b1", via=via))


def test_nobody_gives_a_body_up_or_rejects_it_over_open_calls() -> None:
    job = fold(FLOW, body("b1"), *pair(A))
    rejected = about(ev.InvocationRejected, PARENT, tool="flow", reason=RejectReason.CANCELLED)
    assert not take(job, over("b1", "permanent_failure", via="ledger"))
    take(job, reopened("b1"))
    assert not take(job, rejected)
    take(job, ended("t1", A, outcome="retryable_failure"))
    assert not take(job, rejected)
    take(job, about(ev.InvocationRejected, named(A), args=A, reason=RejectReason.CANCELLED))
    assert take(job, rejected)


def test_a_superseded_body_ends_nothing() -> None:
    job = taken_over()
    assert not take(job, over("b1", said=NOTHING_RECORDED))
    assert not take(job, over("b1", "permanent_failure", said=NOTHING_RECORDED, via="late"))
    waits = fold(FLOW, body("b1"), reopened("b1"))
    assert not take(waits, over("b1", said=NOTHING_RECORDED))
    stands = fold(FLOW, body("b1"), parked("b1"))
    assert not take(stands, over("b1", said=NOTHING_RECORDED))


# 5. What was there before holds for calls of a body too.


def test_a_caught_failure_that_may_have_taken_effect_makes_a_human_decide_about_undoing() -> None:
    undo: dict[str, Any] = {"compensate_with": {"tool": "act", "args": {"undo": {"$ref": f"{named(B)}#/id"}}}}
    done = [call("b1", B, said=None, **undo), first("b1", "t2", B), ended("t2", B, result={"id": 7})]
    sure = fold(FLOW, body("b1"), *pair(A), ended("t1", A, outcome="permanent_failure"), *done)
    for event in (over("b1", "permanent_failure"), stopping()):
        assert take(sure, event)
    assert unsure(sure) is None
    assert may_compensate(sure)
    undoing = {"id": f"{named(B)}.undo", "compensates": named(B), **undo["compensate_with"]}
    assert take(sure, planned({"tools": {}, "nodes": [undoing]}, 1))
    open_end = ended("t1", A, outcome="permanent_failure", via="ledger")
    doubt = fold(FLOW, body("b1"), *pair(A), open_end, *done, over("b1", "permanent_failure"), stopping())
    assert unsure(doubt) == named(A)
    assert not take(doubt, planned({"tools": {}, "nodes": [undoing]}, 1))


def test_a_plan_with_bodies_is_replaced_by_no_other() -> None:
    job = fold(FLOW)
    assert not take(job, planned(graph({"id": "z"}), 1))
    assert not take(job, with_bodies(GRAPH, 1))
    take(job, body("b1"))
    take(job, call("b1", A))
    assert not take(job, planned(graph({"id": named(A)}), 1))


@pytest.mark.parametrize(
    "plan",
    [
        planned(GRAPH),
        with_bodies(graph({"id": "a"})),
        with_bodies(GRAPH | {"tools": GRAPH["tools"] | {"flow": GRAPH["tools"]["act"]}}),
        with_bodies(GRAPH | {"tools": GRAPH["tools"] | {"flow": GRAPH["tools"]["flow"] | {"irreversible": True}}}),
        with_bodies(graph(GRAPH["nodes"][0] | {"irreversible": True}, **GRAPH["tools"])),
        with_bodies(graph(GRAPH["nodes"][0] | {"tool": None}, **GRAPH["tools"])),
    ],
)
def test_a_plan_says_that_it_has_bodies_and_they_do_nothing_themselves(plan: ev.PlanGenerated) -> None:
    assert fold(plan).revision == -1


def test_calls_of_a_body_are_paused_and_frozen_as_others() -> None:
    job = fold(FLOW, body("b1"), call("b1", A), ev.JobPaused(job_id=JOB, number=1, by="ann"))
    assert start_is_void(job, first("b1", "t1", A)) == "the job is paused"
    assert take(job, call("b1", B))
