"""A partition's barrier of later rules: written once it is ordered and known here, answered once it is read."""

from collections.abc import Iterator

import pytest

from aetheris.ledger.core.decisions import Barrier, Decision, Facts, Now, RulesTaken
from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.core.partition import Partition
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY, RulesAnswer, RulesBarrier
from aetheris.protocol.tables.rules_orders import PartitionRules, RulesOrders
from aetheris.runtime.process.policy_file import load
from tests.testkit.rules_orders import both_known
from tests.unit.ledger.test_waits import LIMITS, START
from tests.unit.protocol.test_rules_orders import order

NOW = Now(0.0, START)


class RulesLedger:
    """A ledger's partition, and what its process has read of orders."""

    def __init__(self, orders: RulesOrders | None = None) -> None:
        self.orders = orders or RulesOrders()
        context = DecisionContext(load(None), LIMITS, lambda: "id", lambda: 1.0)
        self.core = Partition(context, {}, 4, PartitionRules(self.orders, 4))

    def order(self, number: int) -> None:
        line = order(number).model_dump_json().encode()
        read = self.orders.read(line)
        assert read is not None
        assert self.orders.hear(read)

    def decided(self) -> list[Decision]:
        self.core.to_fetch(NOW)
        return self.core.decide(Facts(), NOW)


@pytest.fixture
def ledger() -> Iterator[RulesLedger]:
    with both_known():
        made = RulesLedger()
        made.core.restored(NOW)
        yield made


def barrier(number: int = 2) -> RulesBarrier:
    return RulesBarrier(number=number, order=order(number).model_dump_json())


def test_it_writes_the_barrier_reads_it_back_and_answers_where_it_lies_each_once(ledger: RulesLedger) -> None:
    assert ledger.decided() == []
    ledger.order(2)
    assert ledger.core.next_due() == float("-inf")
    assert ledger.decided() == [Barrier(barrier())]
    assert ledger.decided() == []
    assert list(ledger.core.live()) == []
    ledger.core.passed(barrier(), 17)
    assert list(ledger.core.live()) == [(RULES_BARRIER_KEY, 17)]
    answer = RulesAnswer(number=2, partition=4, barrier=17)
    assert ledger.decided() == [RulesTaken(answer)]
    assert ledger.decided() == []
    assert ledger.orders.hear(answer)
    assert list(ledger.core.live()) == []
    ledger.core.passed(barrier(), 18)
    assert ledger.decided() == []


def test_a_successor_answers_the_barrier_that_it_reads(ledger: RulesLedger) -> None:
    ledger.order(2)
    successor = RulesLedger(ledger.orders)
    successor.core.passed(barrier(), 17)
    assert successor.decided() == [], "it has not read all"
    successor.core.restored(NOW)
    assert successor.decided() == [RulesTaken(RulesAnswer(number=2, partition=4, barrier=17))]


def test_where_it_is_answered_nobody_writes_another(ledger: RulesLedger) -> None:
    ledger.order(2)
    ledger.orders.hear(RulesAnswer(number=2, partition=4, barrier=17))
    assert ledger.decided() == []


def test_what_it_does_not_know_it_leaves_to_who_does(ledger: RulesLedger) -> None:
    ledger.order(3)
    assert ledger.decided() == []


def test_a_barrier_is_answered_once_its_order_is_read(ledger: RulesLedger) -> None:
    ledger.core.passed(barrier(), 17)
    assert ledger.decided() == []
    ledger.order(2)
    assert ledger.decided() == [RulesTaken(RulesAnswer(number=2, partition=4, barrier=17))]
