"""Under which version of the rules jobs are created, as the log has it: which births are none, and who has answered."""

from dataclasses import dataclass, field

from aetheris.protocol.messages.commands import Message, RulesAnswer, RulesBarrier, RulesOrder
from aetheris.protocol.messages.events import JobCreated


@dataclass(slots=True)
class RulesWatch:
    """Of all partitions. It counts for itself."""

    ordered: int = 1
    """The version that was ordered last."""
    _barriers: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """Partition → where which version has its barrier."""
    _answered: dict[int, int] = field(default_factory=dict[int, int])
    """Partition → the last version that it has answered."""

    def told(self, body: Message) -> str | None:
        """The next record of the topic; what is wrong with it."""
        if isinstance(body, RulesOrder):
            self.ordered = max(self.ordered, body.number)
        elif isinstance(body, RulesAnswer):
            self._answered[body.partition] = max(body.number, self._answered.get(body.partition, 0))
            if (body.barrier, body.number) not in self._barriers.get(body.partition, ()):
                return (
                    f"partition {body.partition} answers {body.number} at {body.barrier}, where no barrier of it lies"
                )
        return None

    def passed(self, partition: int, barrier: RulesBarrier, offset: int) -> None:
        """A barrier lies in a partition."""
        self._barriers.setdefault(partition, []).append((offset, barrier.number))

    def refuses(self, birth: JobCreated, partition: int, offset: int) -> bool:
        """Whether a job is none that is created there."""
        return any(at < offset and birth.rules < version for at, version in self._barriers.get(partition, ()))

    def mark_at(self, partition: int, offset: int) -> int:
        """Where a mark lies at most that is to lie at an offset: behind no barrier of which the topic tells nobody."""
        told = self._answered.get(partition, 0)
        return min((offset, *(at for at, version in self._barriers.get(partition, ()) if version > told)))

    def is_answered(self, partitions: int) -> bool:
        """Whether every partition has answered the last one."""
        return self.ordered == 1 or all(self._answered.get(one) == self.ordered for one in range(partitions))
