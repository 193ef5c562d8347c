"""What names an activation that nobody has activated is asked for once, and holds what names it, and nothing else."""

import asyncio
from dataclasses import dataclass, field

from aetheris.ledger.core.live_jobs import DecisionContext
from aetheris.ledger.unread_activations import UnreadActivations
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import PolicyBarrier
from aetheris.protocol.planning.policy import parse
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import about, graph
from tests.testkit.ledgers import ALLOW_ALL, Ledger, Surroundings

PIN = {"effect_class": "probeable", "irreversible": True, "schema_hash": "pay-1"}
PLAN = graph({"id": "a", "tool": "pay"}, {"id": "b", "tool": "pay", "args": {"n": 2}}, pay=PIN)
FORGED = 1_000_000


class SlowTopic(OrderTable[PolicyActivations]):
    """Who asks for its end has it when that is let go on."""

    def __init__(self) -> None:
        super().__init__(Table(MemoryLog(1), Topic.POLICIES), PolicyActivations())
        self.asked: list[asyncio.Event] = []

    async def caught_up(self) -> None:
        end = asyncio.Event()
        self.asked.append(end)
        await end.wait()


class StandingClock(SystemClock):
    """The time of a ledger's surroundings."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def monotonic(self) -> float:
        return self._surroundings.now_s


@dataclass
class Held:
    """A partition's ledger, of a process that has others, too."""

    topic: SlowTopic
    context: DecisionContext | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.ledger = Ledger(Surroundings(PLAN, parse(ALLOW_ALL)), context=self.context)
        self.in_force = self.ledger.policies
        self.unread = UnreadActivations(
            self.ledger.core,
            self.in_force,
            self.topic,
            metrics=Metrics("ledger"),
            clock=StandingClock(self.ledger.surroundings),
            wake_up=self.woken.set,
        )

    async def let_go_on(self, asked: int) -> None:
        """The end of the topic is there, for who has asked for it as this one."""
        self.topic.asked[asked].set()
        await self.woken.wait()
        self.woken.clear()
        self.round()

    def round(self) -> None:
        self.ledger.settle()
        self.unread.look()


def two() -> tuple[Held, Held]:
    """Partitions of one process."""
    one = Held(SlowTopic())
    return one, Held(one.topic, one.ledger.context)


async def asked_for() -> None:
    """Tasks that were begun have come to where they wait."""
    await asyncio.sleep(0)


async def test_a_forged_barrier_holds_its_own_partition_alone_until_the_topic_was_read() -> None:
    one, other = two()
    one.ledger.core.passed(PolicyBarrier(number=FORGED), 1)
    for held in (one, other):
        held.ledger.request("a", offset=1)
        held.round()
    await asked_for()
    assert (one.ledger.grants, len(other.ledger.grants), len(one.topic.asked)) == ([], 1, 1)
    await one.let_go_on(0)
    assert len(one.ledger.grants) == 1


async def test_two_partitions_that_ask_at_once_are_both_let_go_on() -> None:
    one, other = two()
    for held in (one, other):
        held.ledger.core.passed(PolicyBarrier(number=7), 1)
        held.ledger.request("a", offset=1)
        held.round()
    await asked_for()
    assert one.ledger.grants == other.ledger.grants == []
    await one.let_go_on(0)
    await other.let_go_on(1)
    assert len(one.ledger.grants) == len(other.ledger.grants) == 1


async def test_a_job_that_is_held_hides_no_forged_barrier() -> None:
    held = Held(SlowTopic())
    named = {"rule": "r", "args_hash": "0" * 64, "tool_version": "1", "policy_hash": "0" * 64, "activation": 1}
    held.ledger.add(about(ev.PolicyAllowed, "b", args={"n": 2}, tool="pay", **named))
    held.round()
    await asked_for()
    await held.let_go_on(0)
    assert (held.in_force.missing, len(held.topic.asked)) == ({0: 1}, 1), "it is missing, and is not asked for again"
    held.ledger.core.passed(PolicyBarrier(number=FORGED), held.ledger.core.folded)
    held.round()
    await asked_for()
    await held.let_go_on(1)
    assert (held.ledger.core.unknown_barriers, held.in_force.missing, len(held.topic.asked)) == (0, {0: 1}, 2)


async def test_who_gives_the_partition_back_asks_no_more() -> None:
    held = Held(SlowTopic())
    held.ledger.core.passed(PolicyBarrier(number=FORGED), 1)
    held.round()
    await asked_for()
    await held.unread.close()
    held.topic.asked[0].set()
    await asked_for()
    assert (held.ledger.core.unknown_barriers, held.woken.is_set()) == (1, False)
