"""What is frozen, as the log has it: what no call may come behind, and whether every order was answered."""

from dataclasses import dataclass, field

from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.commands import FreezeAnswer, FreezeBarrier, FreezeOrder
from aetheris.protocol.messages.events import Event, JobFrozen, JobUnfrozen
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.testkit.simulation.external_system import ExternalCall

Barred = tuple[int, FreezeOrder]
"""offset, and the order in the barrier there"""
Words = list[tuple[int, FreezeScope, int, bool]]
"""offset, scope, number, and whether a freeze begins."""


@dataclass(slots=True)
class FreezeWatch:
    """Of all partitions."""

    orders: FreezeOrders = field(default_factory=FreezeOrders)
    _barriers: dict[int, list[Barred]] = field(default_factory=dict[int, list[Barred]])
    """Partition → where which freeze has its barrier."""
    _words: dict[str, Words] = field(default_factory=dict[str, Words])
    """By job."""

    def told(self, record: FreezeOrder | FreezeAnswer) -> None:
        """The next record of the topic."""
        self.orders.hear(record)

    def passed(self, partition: int, barrier: FreezeBarrier, offset: int) -> None:
        """A barrier lies in a partition."""
        if barrier.order.frozen:
            self._barriers.setdefault(partition, []).append((offset, barrier.order))

    def note(self, event: Event, offset: int) -> None:
        """What is said in a job."""
        if isinstance(event, JobFrozen | JobUnfrozen):
            said = (offset, event.scope, event.number, isinstance(event, JobFrozen))
            self._words.setdefault(event.job_id, []).append(said)

    def broken(self, job: JobState, call: ExternalCall, at: int, partition: int) -> str | None:
        """Why a call, whose `started` lies at an offset, may not go out."""
        who = job.created.tenant, job.created.submitted_by, call.tool
        for offset, order in self._barriers.get(partition, ()):
            if offset < at and order.scope.holds(*who) and not self.orders.is_over(order):
                return f"{call.invocation_id} of {call.node_id} at {at}, {order.scope} is frozen since {offset}"
        for scope in self._standing(job.job_id, at):
            if scope.holds(*who):
                return f"{call.invocation_id} of {call.node_id} at {at}, its job says that {scope} is frozen"
        return None

    def is_answered(self, partitions: int) -> bool:
        """Whether every partition has answered the last order of each scope."""
        return all(len(self.orders.answers(order.key)) == partitions for order in self.orders.all())

    def _standing(self, job_id: str, at: int) -> list[FreezeScope]:
        standing: dict[FreezeScope, int] = {}
        last: dict[FreezeScope, int] = {}
        for offset, scope, number, begins in self._words.get(job_id, ()):
            if offset < at and begins and number > last.get(scope, 0):
                standing[scope] = last[scope] = number
            elif offset < at and not begins and standing.get(scope) == number:
                del standing[scope]
        return list(standing)
