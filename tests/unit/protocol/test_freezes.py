"""What a freeze holds back, and which word on it counts: of a job by the scope's number, of a topic in its order."""

import pytest
from pydantic import ValidationError

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeOrder
from aetheris.protocol.messages.events import Event
from aetheris.protocol.tables.freeze_orders import FreezeOrders, is_frozen
from tests.testkit.histories import JOB, TENANT, finished, fold, graph, key_of, planned, started
from tests.testkit.tries import try_of

PLAN = planned(graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}))
ALL = FreezeScope(tenant=TENANT)
AGENT = FreezeScope(tenant=TENANT, agent="ann")
VOID = "it is frozen"


def frozen(number: int = 1, scope: FreezeScope = ALL) -> ev.JobFrozen:
    return ev.JobFrozen(job_id=JOB, scope=scope, number=number, by="bob", at="then")


def unfrozen(number: int = 1, scope: FreezeScope = ALL) -> ev.JobUnfrozen:
    return ev.JobUnfrozen(job_id=JOB, scope=scope, number=number, by="bob", at="then")


def taken_back(number: int, ordered: int) -> ev.JobUnfrozen:
    return unfrozen(number).model_copy(update={"ordered": ordered})


def order(number: int, *, begins: bool = True, scope: FreezeScope = ALL) -> FreezeOrder:
    return FreezeOrder(scope=scope, number=number, frozen=begins, by="bob", at="then")


@pytest.mark.parametrize("scope", [ALL, AGENT, FreezeScope(tool="act"), FreezeScope(tenant=TENANT, tool="act")])
def test_a_start_behind_a_freeze_is_void_and_counts_behind_its_end(scope: FreezeScope) -> None:
    assert start_is_void(fold(PLAN, frozen(1, scope)), started("a", "n1")) == VOID
    assert start_is_void(fold(PLAN, frozen(1, scope), unfrozen(1, scope)), started("a", "n1")) is None


@pytest.mark.parametrize(
    "scope", [FreezeScope(tenant="other"), FreezeScope(tenant=TENANT, agent="eve"), FreezeScope(tool="other")]
)
def test_what_is_not_named_starts(scope: FreezeScope) -> None:
    assert start_is_void(fold(PLAN, frozen(1, scope)), started("a", "n1")) is None


def test_what_is_under_way_settles_and_what_is_reopened_waits() -> None:
    job = fold(PLAN, started("a", "n1"), frozen(), finished("a", "n1"))
    assert job.keys[key_of("a")].outcome is Settled.SUCCESS
    again = ev.InvocationReopened(
        job_id=JOB, node_id="a", idempotency_key=key_of("a"), invocation_id=try_of("n1"), next_token=2, by="policy"
    )
    job = fold(PLAN, started("a", "n1"), frozen(), again)
    assert job.keys[key_of("a")].status is KeyStatus.REOPENED
    assert start_is_void(job, started("a", "n2", token=2)) == VOID


def test_what_was_void_behind_a_freeze_stays_void_when_it_comes_again_behind_its_end() -> None:
    job = fold(PLAN, frozen(), started("a", "n1"), unfrozen(), started("a", "n1"))
    assert key_of("a") not in job.keys
    assert start_is_void(job, started("a", "n2")) is None


@pytest.mark.parametrize(
    ("events", "number"),
    [
        ((frozen(3),), 3),
        ((frozen(3), frozen(2)), 3),
        ((frozen(1), frozen(2)), 2),
        ((frozen(1), frozen(2), unfrozen(1)), 2),
        ((frozen(1), unfrozen(1), frozen(1)), None),
        ((frozen(1), unfrozen(1), frozen(2)), 2),
        ((frozen(1), unfrozen(2)), 1),
        ((unfrozen(1), frozen(1)), 1),
        ((frozen(9), unfrozen(9), frozen(2)), None),
        ((frozen(9), taken_back(9, 1), frozen(2)), 2),
        ((frozen(9), taken_back(9, 1), frozen(1)), None),
        ((frozen(9), taken_back(8, 1), frozen(2)), 9),
        ((frozen(9), taken_back(9, 9)), 9),
        ((frozen(9), unfrozen(9), taken_back(9, 1), frozen(2)), None),
        ((frozen(1), ev.CancelRequested(job_id=JOB, by="ann", compensate=True)), 1),
        ((frozen(1), ev.JobFailed(job_id=JOB, error="x")), None),
        ((ev.JobFailed(job_id=JOB, error="x"), frozen(1)), None),
    ],
)
def test_only_a_later_freeze_counts_and_only_its_own_end_or_the_jobs_ends_it(
    events: tuple[Event, ...], number: int | None
) -> None:
    found = fold(PLAN, *events).frozen.get(ALL)
    assert (found.number if found is not None else None) == number


def test_two_freezes_must_both_be_over() -> None:
    job = fold(PLAN, frozen(), frozen(1, AGENT), unfrozen())
    assert start_is_void(job, started("a", "n1")) == VOID


@pytest.mark.parametrize(
    ("orders", "counting"),
    [
        ((order(1), order(1)), (True, False)),
        ((order(2),), (False,)),
        ((order(1, begins=False),), (False,)),
        ((order(1), order(1, begins=False), order(1, begins=False)), (True, True, False)),
        ((order(1), order(1, begins=False), order(1)), (True, True, False)),
        ((order(1), order(2), order(1, begins=False), order(2)), (True, False, True, True)),
        ((order(1), order(1, scope=AGENT), order(1, begins=False)), (True, True, True)),
    ],
)
def test_an_order_begins_the_next_freeze_of_its_scope_or_ends_the_one_in_force(
    orders: tuple[FreezeOrder, ...], counting: tuple[bool, ...]
) -> None:
    known = FreezeOrders()
    assert tuple(known.take(one) for one in orders) == counting


def test_an_answer_to_an_earlier_order_is_none() -> None:
    known = FreezeOrders()
    known.take(order(1))
    assert known.answer(FreezeAnswer(scope=ALL, number=1, frozen=True, partition=0))
    known.take(order(1, begins=False))
    assert known.answers(ALL.key) == {}
    assert not known.answer(FreezeAnswer(scope=ALL, number=1, frozen=True, partition=1))


def test_what_is_ordered_holds_before_the_job_says_so() -> None:
    known = FreezeOrders()
    known.take(order(1, scope=FreezeScope(tool="act")))
    assert is_frozen(fold(PLAN), ("act",), known)
    assert not is_frozen(fold(PLAN), ("other",), known)
    assert not is_frozen(fold(PLAN), (None,), known)


@pytest.mark.parametrize(
    "scope", [{}, {"agent": "x"}, {"tenant": "t", "agent": "x", "tool": "y"}, {"tool": ""}, {"tenant": "t" * 257}]
)
def test_a_scope_names_an_agent_a_tenant_or_a_tool(scope: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        FreezeScope.model_validate(scope)


def test_no_scope_has_the_name_of_another() -> None:
    scopes = [
        FreezeScope(tenant="a"),
        FreezeScope(tenant="a", agent="b:c"),
        FreezeScope(tenant="a:b", agent="c"),
        FreezeScope(tool="1:a:b"),
        FreezeScope(tenant="a", tool="b"),
    ]
    assert len({scope.key for scope in scopes}) == len(scopes)
