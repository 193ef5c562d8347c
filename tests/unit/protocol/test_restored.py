"""The fence of a restored log: what it says counts, whoever had paused or frozen before, and every doubt is named."""

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning import restored
from aetheris.protocol.tables.freeze_orders import FreezeOrders, is_frozen
from tests.testkit.histories import JOB, finished, fold, graph, planned, started

PLAN = planned(graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))
AT = "2026-11-26T10:00:00Z"


def fenced(*before: Event) -> tuple[JobState, list[ev.JobResumed | ev.JobPaused]]:
    said = restored.pause(fold(*before), "ann", "restored")
    return fold(*before, *said), said


@pytest.mark.parametrize(
    "before",
    [
        (PLAN,),
        (PLAN, started("a", "n1")),
        (PLAN, ev.JobPaused(job_id=JOB, number=1, by="bob")),
        (PLAN, ev.JobPaused(job_id=JOB, number=1, by="bob"), ev.JobResumed(job_id=JOB, number=1, by="bob")),
        (PLAN, ev.JobStopping(job_id=JOB, by="planner", reason="step_failed", up_to_revision=0)),
    ],
    ids=["planned", "under way", "paused by somebody", "paused before", "stopping"],
)
def test_nothing_of_an_open_job_starts_until_this_very_pause_is_over(before: tuple[Event, ...]) -> None:
    job, said = fenced(*before)
    assert job.paused is not None
    assert (job.paused.by, job.paused.reason is not None and "restored" in job.paused.reason) == ("ann", True)
    assert start_is_void(job, started("b", "n9")) is not None
    late = ev.JobResumed(job_id=JOB, number=job.pauses - 1 or 7, by="bob")
    assert fold(*before, *said, late).paused is not None, "a resume of an earlier pause ends nothing"


def test_who_had_paused_it_before_is_named() -> None:
    job, _ = fenced(PLAN, ev.JobPaused(job_id=JOB, number=1, by="bob"))
    assert job.paused is not None
    assert job.paused.reason == "restored; before that paused by bob"


@pytest.mark.parametrize(
    "over",
    [ev.JobCompleted(job_id=JOB), ev.CancelRequested(job_id=JOB, by="bob", compensate=True)],
    ids=["over", "cancelled"],
)
def test_what_no_pause_holds_is_not_said_to_be_paused(over: Event) -> None:
    job, said = fenced(PLAN, over)
    assert (said, job.paused) == ([], None)


def test_each_step_that_may_have_acted_is_named() -> None:
    job = fold(PLAN, started("a", "n1"))
    assert [(one.node_id, one.stands) for one in restored.uncertain(job)] == [("a", "started"), ("b", "not begun")]
    job = fold(PLAN, started("a", "n1"), finished("a", "n1"))
    assert [(one.node_id, one.stands) for one in restored.uncertain(job)] == [("b", "not begun")]


@pytest.mark.parametrize("before", [(), (True,), (True, False), (True, False, True)])
def test_a_tenant_is_frozen_by_the_restore_whatever_was_ordered_before(before: tuple[bool, ...]) -> None:
    orders, scope = FreezeOrders(), FreezeScope(tenant="acme")
    for at, frozen in enumerate(before):
        assert orders.take(FreezeOrder(scope=scope, number=at // 2 + 1, frozen=frozen, by="bob", at=AT))
    for order in restored.freezes(orders, ["acme", "beta", "acme"], "ann", AT, "restored"):
        assert orders.take(order), "each counts"
    assert {one.scope.tenant: one.by for one in orders.in_force()} == {"acme": "ann", "beta": "ann"}


def test_a_job_of_a_frozen_tenant_is_frozen_also_where_its_log_has_no_word_of_it() -> None:
    job, orders = fold(PLAN), FreezeOrders()
    for order in restored.freezes(orders, [job.created.tenant], "ann", AT, "restored"):
        orders.take(order)
    assert is_frozen(job, ["pay"], orders)
