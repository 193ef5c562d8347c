"""By which version of the rules jobs are created, as the topic `policies` says, and a partition's barriers (ADR 9)."""

from collections.abc import Collection, Iterator, Mapping

from pydantic import ValidationError

from aetheris.protocol.base.sealed import SealedNames
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import (
    RULES_BARRIER_KEY,
    RULES_KEY,
    JobPlaced,
    RulesAnswer,
    RulesBarrier,
    RulesOrder,
)
from aetheris.protocol.messages.event_base import FIRST_RULES
from aetheris.protocol.tables.numbered_orders import NumberedOrders
from aetheris.protocol.tables.signed_messages import IsTheirs


class RulesOrders(NumberedOrders[RulesOrder, RulesAnswer]):
    """All orders that count, and where each partition has answered that its barrier lies."""

    def __init__(self) -> None:
        super().__init__(RulesOrder, RulesAnswer)
        self.history: list[RulesOrder] = []
        """Oldest first."""
        self._barriers: dict[int, dict[int, int]] = {}

    @property
    def active(self) -> RulesOrder | None:
        """The one in force; None before the first."""
        return self.last(RULES_KEY)

    @property
    def version(self) -> int:
        """The one that was ordered last."""
        return FIRST_RULES if self.active is None else self.active.number

    def is_ordered(self, version: int) -> bool:
        """Whether it was, once."""
        return any(order.number == version for order in self.history)

    def has_line(self, line: str) -> bool:
        """Whether an order lies there in just these bytes."""
        return any(order.line == line for order in self.history)

    def barriers_of(self, partition: int) -> Mapping[int, int]:
        """Version → the offset of the partition's barrier, of those that it has answered."""
        return self._barriers.get(partition, {})

    def read(self, value: bytes) -> RulesOrder | RulesAnswer | None:
        """The order, with the line that it is, or the answer, in a record's value; None where it is neither."""
        found = super().read(value)
        return found.model_copy(update={"line": value.decode()}) if isinstance(found, RulesOrder) else found

    def take(self, order: RulesOrder) -> bool:
        """Take an order; whether it counts."""
        if not super().take(order):
            return False
        self.history.append(order)
        return True

    def answer(self, answer: RulesAnswer) -> bool:
        """Take a partition's answer, the first to each order; whether it counts."""
        known = self._barriers.setdefault(answer.partition, {})
        if not self.is_ordered(answer.number) or answer.number in known:
            return False
        known[answer.number] = answer.barrier
        super().answer(answer)
        return True

    def _follows(self, order: RulesOrder, last: RulesOrder | None) -> bool:
        return order.number > (FIRST_RULES if last is None else last.number)

    def _is_to(self, answer: RulesAnswer, order: RulesOrder) -> bool:
        return answer.number == order.number


class PartitionRules:
    """Under which version a job's creation must be, by where it lies in one partition, and of which job it must not be.

    What is read of the partition says so by its place; of what lies below, the partition has answered where it lies. A
    job that was placed elsewhere is known by name for as long as one that was sealed is.
    """

    def __init__(self, orders: RulesOrders | None = None, partition: int = 0) -> None:
        self.orders = orders or RulesOrders()
        self._partition = partition
        self._passed: dict[int, int] = {}
        self._placed = SealedNames()

    def passed(self, barrier: RulesBarrier, offset: int) -> None:
        """A barrier of an order was read; of several of a version the first is the one."""
        self._passed.setdefault(barrier.number, offset)

    @property
    def in_force(self) -> int:
        """The version under which a job is created that is created now."""
        return max((FIRST_RULES, *self.barred))

    @property
    def barred(self) -> Collection[int]:
        """The versions that have a barrier here."""
        return self._passed.keys() | self.orders.barriers_of(self._partition).keys()

    def placed(self, barrier: JobPlaced) -> None:
        """It was read that a job is created elsewhere; one that was created here before lives on."""
        self._placed.add(barrier.of_job)

    def refuses(self, version: int, offset: int, job_id: str = "") -> bool:
        """Whether a creation is under earlier rules than the barriers before it ask for, or is one elsewhere."""
        return job_id in self._placed or any(offset > at and version < asked for asked, at in self._all())

    def unanswered(self) -> list[tuple[int, int]]:
        """The barriers that were read and that the topic does not have yet: (version, offset)."""
        answered = self.orders.barriers_of(self._partition)
        return [(version, at) for version, at in self._passed.items() if version not in answered]

    def needed(self) -> Iterator[tuple[str, int]]:
        """Where reading has to begin for their sake, as of a live job: nobody else tells a restart of them yet."""
        for _, at in sorted(self.unanswered(), key=lambda one: one[1])[:1]:
            yield RULES_BARRIER_KEY, at

    def _all(self) -> Iterator[tuple[int, int]]:
        yield from self._passed.items()
        yield from self.orders.barriers_of(self._partition).items()


def is_ordered(barrier: RulesBarrier, is_theirs: IsTheirs) -> bool:
    """Whether what a barrier says was ordered by who may: the order is in it, as it lies in its topic."""
    try:
        order = RulesOrder.model_validate_json(barrier.order)
    except ValidationError:
        return False
    is_same = order.number == barrier.number > FIRST_RULES
    return is_same and is_theirs(Topic.POLICIES, RulesOrder.type_name, RULES_KEY.encode(), barrier.order.encode())
