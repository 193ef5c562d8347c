"""Messages that are not their writer's, told: who is told of a root obeys none of them."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import structlog

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY, PartitionBarrier, RulesBarrier
from aetheris.protocol.messages.envelope import read_barrier
from aetheris.protocol.tables.rules_orders import RulesOrders, is_ordered
from aetheris.protocol.tables.signed_messages import PIECE, SignedMessages
from aetheris.runtime.log.interface import LogUnreachable
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metric, Metrics

_RULES_BARRIER = RULES_BARRIER_KEY.encode()
_AGAIN_S = 1.0

_log = structlog.get_logger(__name__)

MOST_ROOTS = 20
"""Roots that are named, each with a kind of line; anybody can have as many as he likes."""


class PassedOver(NamedTuple):
    """Lines of a kind that name a root which this service is not told of."""

    topic: str
    type: str
    root: str


async def orders_read(records: Iterable[Record], rules: OrderTable[RulesOrders]) -> None:
    """Before a barrier of rules is judged: its order lay in its topic before it, and what is not there is no order."""
    while any(record.key == _RULES_BARRIER for record in records):
        try:
            await rules.caught_up()
            return
        except LogUnreachable as error:
            _log.warning("the orders of rules are not known yet", reason=str(error))
            await asyncio.sleep(_AGAIN_S)


class HeardMessages:
    """Lets those through that count, and tells of the others, without what they say."""

    def __init__(self, messages: SignedMessages, metrics: Metrics, orders: RulesOrders | None = None) -> None:
        """`orders`: of rules. Where nobody signs, a barrier's order counts if these have it, whoever may append."""
        self._messages = messages
        self._metrics = metrics
        self._orders = orders
        self._followed: dict[str, Table] = {}
        self._passed_over: Counter[PassedOver] = Counter()

    def follow(self, *tables: Table) -> None:
        """Of their lines under roots that are not told here it is said once how many there are, when they are loaded.

        Their orders have ended for this service: who took the root away has to hear of it.
        """
        for table in tables:
            self._followed[table.topic] = table
            table.on_loaded(lambda topic=table.topic: self._loaded(topic))

    def other_roots(self) -> list[dict[str, str | int]]:
        """The same as of now, for an operator."""
        return [one._asdict() | {"lines": lines} for one, lines in self._passed_over.items()]

    def counts(self, record: Record, name: str) -> bool:
        """Whether a record of a type is of who may write it."""
        place = (record.partition, record.offset) if record.topic == Topic.JOBS_EVENTS else None
        counts = self._messages.counts(record.topic, name, record.key, record.value, place)
        if not counts:
            self._tell(record.topic, name, record.key, partition=record.partition, offset=record.offset)
        return counts

    def barrier(self, record: Record) -> PartitionBarrier | None:
        """The barrier in a record whose ce_type is one of BARRIERS; None where it is none, or not its writer's."""
        found = read_barrier(record)
        if found is None or not self.counts(record, found.type_name):
            return None
        if isinstance(found, RulesBarrier) and not self._is_ordered(found, record):
            return None
        return found

    def _is_ordered(self, barrier: RulesBarrier, record: Record) -> bool:
        if record.key != _RULES_BARRIER or not is_ordered(barrier, self.line_counts):
            return False
        if self._orders is None or not self._messages.believe_all or self._orders.has_line(barrier.order):
            return True
        self._tell(record.topic, barrier.type_name, record.key, partition=record.partition, offset=record.offset)
        return False

    def piece_counts(self, record: Record) -> bool:
        """Whether a piece of a checkpoint is of the service whose topic it is: what isn't counts as none."""
        counts = self._messages.piece_counts(record)
        if not counts:
            self._tell(record.topic, PIECE, record.key, partition=record.partition, offset=record.offset)
        return counts

    def line_counts(self, topic: str, name: str, key: bytes, value: bytes) -> bool:
        """The same of a line of a table."""
        counts = self._messages.counts(topic, name, key, value)
        if not counts and not self._pass_over(topic, name, value):
            self._tell(topic, name, key)
        return counts

    def _pass_over(self, topic: str, name: str, value: bytes) -> bool:
        """Whether it is under another root, and told as such."""
        table = self._followed.get(topic)
        root = self._messages.other_root(topic, name, value) if table is not None else None
        if table is None or root is None:
            return False
        one = PassedOver(topic, name, root)
        is_new = one not in self._passed_over
        if is_new and len(self._passed_over) >= MOST_ROOTS:
            return False
        self._passed_over[one] += 1
        self._metrics.count(Metric.UNSIGNED, topic=topic, type=name)
        if is_new and table.loaded:
            self._tell_root(one)
        return True

    def _loaded(self, topic: str) -> None:
        for one in self._passed_over:
            if one.topic == topic:
                self._tell_root(one)

    def _tell_root(self, one: PassedOver) -> None:
        _log.warning(
            "not in force any more here: AETHERIS_INSTALLATION does not name their root",
            **one._asdict(),
            lines=self._passed_over[one],
        )

    def _tell(self, topic: str, name: str, key: bytes | None, **place: int) -> None:
        shown = (key or b"").decode(errors="replace")
        _log.warning("not signed by who may write it: nothing is done", topic=topic, type=name, key=shown, **place)
        self._metrics.count(Metric.UNSIGNED, topic=topic, type=name)
