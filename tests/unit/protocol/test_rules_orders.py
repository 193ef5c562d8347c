"""Under which rules jobs are created: what orders, barriers and answers say, by place in the log alone."""

import pytest

from aetheris.protocol.messages.commands import RulesAnswer, RulesBarrier, RulesOrder
from aetheris.protocol.tables.rules_orders import PartitionRules, RulesOrders, is_ordered


def order(number: int) -> RulesOrder:
    return RulesOrder(number=number, by="olga", at="now")


def answer(number: int, barrier: int, partition: int = 0) -> RulesAnswer:
    return RulesAnswer(number=number, partition=partition, barrier=barrier)


def barrier(number: int) -> RulesBarrier:
    return RulesBarrier(number=number, order=order(number).model_dump_json())


def ordered(*numbers: int) -> RulesOrders:
    orders = RulesOrders()
    for number in numbers:
        assert orders.take(order(number))
    return orders


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_version_counts_above_the_last_and_no_order_twice(number: int) -> None:
    orders = ordered(3)
    assert not orders.take(order(number))
    assert orders.version == 3
    assert orders.take(order(4))
    assert [one.number for one in orders.history] == [3, 4]


def test_the_first_answer_to_an_order_counts_also_when_a_later_one_has_come() -> None:
    orders = ordered(2)
    assert not orders.answer(answer(3, 7)), "nobody has ordered it"
    assert orders.answer(answer(2, 10))
    assert not orders.answer(answer(2, 5))
    assert orders.take(order(3))
    assert orders.answer(answer(2, 9, partition=1))
    assert (orders.barriers_of(0), orders.barriers_of(1)) == ({2: 10}, {2: 9})


def test_a_birth_is_refused_behind_the_barrier_and_not_before_it() -> None:
    rules = PartitionRules()
    assert (rules.in_force, rules.refuses(1, 99)) == (1, False)
    rules.passed(barrier(2), 10)
    rules.passed(barrier(2), 20)
    assert rules.in_force == 2
    assert [rules.refuses(1, at) for at in (9, 11, 21)] == [False, True, True]
    assert [rules.refuses(2, at) for at in (9, 11, 21)] == [False, False, False]
    rules.passed(barrier(3), 30)
    assert [(rules.refuses(1, at), rules.refuses(2, at)) for at in (25, 31)] == [(True, False), (True, True)]


def test_who_reads_from_behind_the_barrier_knows_its_place_by_the_answer() -> None:
    orders = ordered(2)
    orders.answer(answer(2, 10, partition=3))
    here, elsewhere = PartitionRules(orders, 3), PartitionRules(orders, 0)
    assert (here.in_force, here.refuses(1, 11), here.refuses(1, 9)) == (2, True, False)
    assert (elsewhere.in_force, elsewhere.refuses(1, 11)) == (1, False)


def test_a_barrier_is_needed_until_it_is_answered() -> None:
    orders = ordered(2)
    rules = PartitionRules(orders)
    rules.passed(barrier(2), 10)
    assert ([at for _, at in rules.needed()], rules.unanswered()) == ([10], [(2, 10)])
    orders.answer(answer(2, 10))
    assert ([*rules.needed()], rules.unanswered()) == ([], [])


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, order(3).model_dump_json()), (1, order(1).model_dump_json()), (2, "{}"), (2, ""), (2, "[2]")],
)
def test_a_barrier_of_what_nobody_has_ordered_is_none(number: int, said: str) -> None:
    assert is_ordered(barrier(2), lambda *_: True)
    assert not is_ordered(barrier(2), lambda *_: False), "its order is nobody's"
    assert not is_ordered(RulesBarrier(number=number, order=said), lambda *_: True)
