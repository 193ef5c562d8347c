"""Orders that are numbered, and what every partition's ledger answers, as a topic says in its order."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from pydantic import ValidationError

from aetheris.protocol.messages.commands import Message, NumberedOrder, PartitionAnswer

OrderT = TypeVar("OrderT", bound=NumberedOrder)
AnswerT = TypeVar("AnswerT", bound=PartitionAnswer)


class NumberedOrders(ABC, Generic[OrderT, AnswerT]):
    """The last order of each key, and who has answered it; all who have read the topic as far say the same."""

    def __init__(self, order: type[OrderT], answer: type[AnswerT]) -> None:
        self._order, self._answer = order, answer
        self._last: dict[str, OrderT] = {}
        self._answers: dict[str, dict[int, AnswerT]] = {}

    @abstractmethod
    def _follows(self, order: OrderT, last: OrderT | None) -> bool:
        """Whether it is the next one behind the last of its key."""

    @abstractmethod
    def _is_to(self, answer: AnswerT, order: OrderT) -> bool:
        """Whether it answers just that order, of its own key."""

    def read(self, value: bytes) -> OrderT | AnswerT | None:
        """The order, or the answer, in a record's value; None where it is neither."""
        for kind in (self._answer, self._order):  # an answer has a partition, which no order has
            try:
                return kind.model_validate_json(value)
            except ValidationError:
                continue
        return None

    def hear(self, record: Message) -> bool:
        """Take what comes next in the topic; whether it counts."""
        if isinstance(record, self._order):
            return self.take(record)
        return isinstance(record, self._answer) and self.answer(record)

    def take(self, order: OrderT) -> bool:
        """Take an order; whether it counts. Nobody has answered it then."""
        if not self._follows(order, self._last.get(order.key)):
            return False
        self._last[order.key] = order
        self._answers.pop(order.key, None)
        return True

    def answer(self, answer: AnswerT) -> bool:
        """Take a partition's answer; whether it is one to the last order of its key."""
        last = self._last.get(answer.key)
        if last is None or not self._is_to(answer, last):
            return False
        self._answers.setdefault(answer.key, {})[answer.partition] = answer
        return True

    def last(self, key: str) -> OrderT | None:
        """The last order of a key that counts."""
        return self._last.get(key)

    def all(self) -> Collection[OrderT]:
        """The last order of each key."""
        return tuple(self._last.values())

    def answers(self, key: str) -> Mapping[int, AnswerT]:
        """The answers to its last order, by partition."""
        return self._answers.get(key, {})
