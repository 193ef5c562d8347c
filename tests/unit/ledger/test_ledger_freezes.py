"""What people have frozen: no grant, the freeze in each job, then the barrier, then the answer, whoever takes over."""

from typing import Any

import pytest

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder
from tests.testkit.body_histories import GRAPH, body, call
from tests.testkit.histories import JOB, TENANT, finished, graph, planned, started
from tests.testkit.ledgers import TTL_S, Ledger, Surroundings, one

ALL = FreezeScope(tenant=TENANT)
LONG_S = 100 * TTL_S
CHAIN = graph(
    {"id": "a"},
    {"id": "b", "tool": "other", "depends_on": ["a"]},
    {"id": "c", "depends_on": ["b"]},
    act={},
    other={},
)


def order(number: int = 1, *, begins: bool = True, scope: FreezeScope = ALL) -> FreezeOrder:
    return FreezeOrder(scope=scope, number=number, frozen=begins, by="bob", at="then", reason="stop")


def answered(ledger: Ledger) -> list[tuple[int, bool, list[str], int]]:
    return [(one.number, one.frozen, [call.node_id for call in one.acting], one.more) for one in ledger.answers]


def test_nothing_is_granted_until_it_is_unfrozen() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.order(order())
    ledger.request("a")
    ledger.sleep(LONG_S)
    assert (ledger.grants, ledger.core.next_due(), ledger.core.open_request()) == ([], None, 0)
    assert ledger.written() == ["job_frozen"]
    ledger.order(order(begins=False))
    assert ledger.written() == ["job_frozen", "job_unfrozen"]
    assert [grant.nodes for grant in ledger.grants] == [("a",)]
    assert answered(ledger) == [(1, True, [], 0), (1, False, [], 0)]


def test_it_answers_when_the_job_carries_it_and_its_barrier_was_read_with_what_had_started() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"))
    ledger.order(order())
    assert [type(event) for event in ledger.surroundings.log[-1:]] == [ev.JobFrozen]
    assert len(ledger.barriers) == 1
    assert answered(ledger) == [(1, True, ["a"], 0)]


@pytest.mark.parametrize(
    ("end", "acts"),
    [
        ({"outcome": "success"}, False),
        ({"outcome": "permanent_failure"}, False),
        ({"outcome": "permanent_failure", "via": "ledger"}, True),
    ],
)
def test_what_was_settled_without_its_try_may_still_act(end: dict[str, Any], acts: bool) -> None:
    ledger = Surroundings(CHAIN).ledger()
    ledger.add(started("a", "n1"), finished("a", "n1", **end))
    ledger.order(order())
    assert answered(ledger) == [(1, True, ["a"] if acts else [], 0)]


def test_a_barrier_waits_for_the_last_job() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.freezes.take(order())
    ledger.core.ordered(order(), ledger.surroundings.now())
    decided = ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now())
    assert [type(one).__name__ for one in decided] == ["Emit"], "no barrier before the job carries the freeze"
    assert not ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now())


def test_who_takes_over_before_the_answer_says_all_of_it_again() -> None:
    surroundings = Surroundings(one("opaque"))
    surroundings.orders.append(order())
    first = surroundings.ledger()
    assert first.written() == ["job_frozen"]
    second = surroundings.ledger()
    assert second.written() == ["job_frozen"], "the job carries it"
    assert answered(second) == answered(first) == [(1, True, [], 0)]


def test_a_job_that_is_born_later_carries_it_before_anything_is_granted() -> None:
    surroundings = Surroundings(one("opaque"))
    birth, plan = surroundings.log
    surroundings.log, surroundings.ids = [], []
    ledger = surroundings.ledger()
    ledger.order(order())
    assert answered(ledger) == [(1, True, [], 0)]
    ledger.add(birth)
    assert ledger.written() == ["job_frozen"]
    ledger.add(plan)
    ledger.request("a")
    assert ledger.grants == []


def test_a_frozen_tool_cuts_a_run_and_concerns_jobs_that_call_it() -> None:
    ledger = Surroundings(CHAIN).ledger()
    ledger.order(order(scope=FreezeScope(tool="nobody's")))
    assert ledger.written() == []
    ledger.order(order(scope=FreezeScope(tool="other")))
    ledger.request("a", "b", "c")
    assert [grant.nodes for grant in ledger.grants] == [("a",)]
    assert ledger.written() == ["job_frozen"]


def test_a_body_that_comes_to_call_a_frozen_tool_brings_the_freeze() -> None:
    ledger = Surroundings(GRAPH | {"nodes": GRAPH["nodes"][:1]}).ledger()
    ledger.add(body("b1"))
    ledger.order(order(scope=FreezeScope(tool="act")))
    assert (ledger.written(), answered(ledger)) == ([], [(1, True, [], 0)])
    ledger.says(call("b1"))
    assert ledger.written() == ["job_frozen"]
    assert ledger.grants == []


def test_a_plan_that_comes_to_call_a_frozen_tool_brings_the_freeze() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.order(order(scope=FreezeScope(tool="other")))
    assert ledger.written() == []
    base, step = planned(CHAIN), CHAIN["nodes"][1] | {"id": "z", "depends_on": []}
    diff = {"nodes": [step], "tools": {"other": CHAIN["tools"]["other"]}}
    ledger.add(base.model_copy(update={"revision": 1, "task_graph": None, "diff": diff}))
    assert ledger.written() == ["job_frozen"]


def test_doubts_are_settled_and_reopened_calls_wait() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.order(order())
    ledger.lease_lapses()
    ledger.sleep(LONG_S)
    assert (ledger.state().status, ledger.grants) == (KeyStatus.REOPENED, [])
    ledger.order(order(begins=False))
    assert [grant.token for grant in ledger.grants] == [2]


def test_a_freeze_that_somebody_says_late_is_ended_again() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.order(order())
    ledger.order(order(begins=False))
    ledger.order(order(2))
    ledger.order(order(2, begins=False))
    ledger.add(ev.JobFrozen(job_id=JOB, scope=ALL, number=3, by="eve", at=""))
    assert ledger.job.frozen, "nobody has ordered this one, and nobody has ended it"
    late = Surroundings(one("opaque"))
    late.orders += [order(), order(begins=False)]
    other = late.ledger()
    other.add(ev.JobFrozen(job_id=JOB, scope=ALL, number=1, by="bob", at=""))
    assert not other.job.frozen
    assert other.written()[-1] == "job_unfrozen"


def test_what_was_answered_is_not_answered_again() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.order(order())
    ledger.order(order())
    assert len(ledger.answers) == 1
    assert isinstance(ledger.answers[0], FreezeAnswer)


def forged(number: int) -> ev.JobFrozen:
    """By who may append to jobs.events, where records are not signed."""
    return ev.JobFrozen(job_id=JOB, scope=ALL, number=number, by="eve", at="")


def read_all_that_is_ordered(ledger: Ledger) -> None:
    ledger.core.orders_known(ledger.core.unknown_freezes)
    ledger.settle()


def test_what_nobody_has_ordered_is_taken_back_once_all_that_is_ordered_was_read() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.request("a")
    for _ in range(3):  # he may say it as often as he likes
        ledger.add(forged(999))
        ledger.settle()
        assert ledger.job.frozen, "another ledger may have read further"
        assert ledger.core.unknown_freezes == {(ALL, 999)}
        read_all_that_is_ordered(ledger)
        assert (dict(ledger.job.frozen), ledger.core.unknown_freezes) == ({}, frozenset())
    ledger.order(order())
    assert (ledger.job.frozen[ALL].number, answered(ledger)) == (1, [(1, True, [], 0)]), "a lower number counts"
    ledger.order(order(begins=False))
    assert not ledger.job.frozen
    ledger.add(ev.JobFrozen(job_id=JOB, scope=ALL, number=1, by="ann", at=""))
    assert not ledger.job.frozen, "one that is said again, late, is void as ever"


def test_a_freeze_in_force_that_a_forged_one_hides_is_said_again() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.order(order())
    ledger.add(forged(7))
    read_all_that_is_ordered(ledger)
    assert ledger.job.frozen[ALL].number == 1
    ledger.order(order(begins=False))
    assert not ledger.job.frozen


def test_what_is_ordered_and_was_not_read_yet_is_not_taken_back() -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(forged(1))
    asked = ledger.core.unknown_freezes
    ledger.order(order())
    ledger.core.orders_known(asked)
    ledger.settle()
    assert (ledger.job.frozen[ALL].number, ledger.written().count("job_unfrozen")) == (1, 0)


def test_who_takes_over_a_job_that_was_frozen_by_nobody_asks_again() -> None:
    surroundings = Surroundings(one("opaque"))
    first = surroundings.ledger()
    first.add(forged(999))
    second = surroundings.ledger()
    assert second.core.unknown_freezes == {(ALL, 999)}
    read_all_that_is_ordered(second)
    assert not second.job.frozen
