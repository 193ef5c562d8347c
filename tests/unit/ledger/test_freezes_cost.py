"""What freezes cost a ledger: as much as has changed, however many are in force. Calls are counted, not time."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from aetheris.ledger.core.decisions import Answered, Barrier, Decision, Emit, Facts, Now
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.messages.events import JobFrozen
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from tests.testkit.histories import TENANT, created, graph, planned
from tests.testkit.ledgers import START, Policy, limits, load

PLAN = graph({"id": "a"}, {"id": "b", "tool": "other"}, act={}, other={})
NOW = Now(1000.0, START)


class Frozen:
    """A partition with jobs, and freezes in force of tools that none of them calls."""

    def __init__(self, jobs: int, freezes: int) -> None:
        self.orders = FreezeOrders()
        policy: Policy = load(None)
        context = DecisionContext(policy, limits(), lambda: "id", lambda: 1.0, freezes=self.orders)
        self.core = Partition(context, {})
        self.offset = 0
        for number in range(jobs):
            for event in (created(), planned(PLAN)):
                self.log(event.model_copy(update={"job_id": f"job-{number}"}))
        self.core.restored(NOW)
        for number in range(freezes):
            self.order(FreezeScope(tenant=TENANT, tool=f"tool-{number}"))
        self.settle()

    def log(self, event: Any) -> None:
        self.core.evolve(event, self.offset, NOW)
        self.offset += 1

    def order(self, scope: FreezeScope) -> None:
        order = FreezeOrder(scope=scope, number=1, frozen=True, by="bob", at="then")
        assert self.orders.take(order)
        self.core.ordered(order, NOW)

    def decide(self) -> list[Decision]:
        self.core.next_due()
        self.core.to_fetch(NOW)
        return self.core.decide(Facts(), NOW)

    def settle(self) -> list[Decision]:
        found: list[Decision] = []
        while decisions := self.decide():
            found += decisions
            for one in decisions:
                if isinstance(one, Emit):
                    for written in one.events:
                        self.log(written.event)
                elif isinstance(one, Barrier):
                    self.core.passed(one.message, self.offset)
                    self.offset += 1
        return found


def calls(work: Callable[[], object]) -> int:
    """How many functions are called."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_pass_with_nothing_new_costs_the_same_with_any_jobs_and_freezes() -> None:
    few, many = Frozen(2, 2), Frozen(40, 80)
    assert calls(many.decide) == calls(few.decide)


def test_a_new_order_costs_a_jobs_look_whatever_else_is_frozen() -> None:
    def work(frozen: Frozen) -> int:
        return calls(lambda: (frozen.order(FreezeScope(tenant=TENANT, tool="new")), frozen.settle()))

    assert work(Frozen(10, 100)) == work(Frozen(10, 1))
    one, ten, twenty = (work(Frozen(jobs, 10)) for jobs in (1, 10, 20))
    assert (twenty - ten) * 9 == (ten - one) * 10, "linear in the jobs"


def test_a_job_is_born_into_many_freezes_at_the_cost_of_one() -> None:
    def work(frozen: Frozen) -> int:
        return calls(lambda: (frozen.log(created().model_copy(update={"job_id": "new"})), frozen.settle()))

    assert work(Frozen(3, 100)) == work(Frozen(3, 1))


def test_a_barrier_waits_for_no_job_that_was_set_aside_meanwhile() -> None:
    frozen = Frozen(2, 0)
    frozen.order(FreezeScope(tenant=TENANT))
    assert {one.job_id for one in frozen.decide() if isinstance(one, Emit)} == {"job-0", "job-1"}
    frozen.core.needs_upgrade("job-0", frozen.offset)
    frozen.log(JobFrozen(job_id="job-1", scope=FreezeScope(tenant=TENANT), number=1, by="bob", at="then"))
    found = frozen.settle()
    assert [type(one) for one in found] == [Barrier, Answered]


def test_what_nobody_ordered_is_taken_back_of_every_job_however_many_there_are() -> None:
    frozen = Frozen(3, 0)
    scopes = [FreezeScope(tenant=TENANT, tool=f"tool-{number}") for number in range(1_500)]
    for job in frozen.core.jobs:
        for scope in scopes:
            frozen.log(JobFrozen(job_id=job, scope=scope, number=9, by="eve", at=""))
    frozen.core.orders_known(frozen.core.unknown_freezes)
    assert sum(isinstance(one, Emit) for one in frozen.settle()) == 3 * len(scopes)
    assert [dict(job.state.frozen) for job in frozen.core.jobs.awake()] == [{}, {}, {}]
    assert not frozen.core.unknown_freezes
