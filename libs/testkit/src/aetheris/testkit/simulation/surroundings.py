"""What all actors of a run share: log, Redis, outside, time, and the tape that decides."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple, Protocol

from aetheris.protocol.base.checkpoints import Piece
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import CancelContract, JobIndexEntry
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.keys.records import UNSIGNED
from aetheris.testkit.simulation.activated import ActivationWatch
from aetheris.testkit.simulation.external_system import CallFate, ExternalCall, SimulatedExternalSystem
from aetheris.testkit.simulation.flows import AS_IT_WAS
from aetheris.testkit.simulation.installation import SimRecords, keys_of
from aetheris.testkit.simulation.log import Entry, SimLog
from aetheris.testkit.simulation.ordered_rules import RulesWatch
from aetheris.testkit.simulation.scenario import Lasting, Scenario
from aetheris.testkit.simulation.stores import SimRedis
from aetheris.testkit.simulation.tape import Tape

START = datetime(2026, 1, 1, tzinfo=UTC)


class ScheduledAction(NamedTuple):
    """Something that may happen next."""

    name: str
    do: Callable[[], None]


class SimulatedActor(Protocol):
    """A process, or a human."""

    name: str

    def actions(self) -> Iterable[ScheduledAction]:
        """What it may do next."""
        ...


@dataclass(slots=True)
class Offsets:
    """What a consumer group has committed: where its next member goes on."""

    committed: dict[Topic, int] = field(default_factory=dict[Topic, int])

    def start(self, topic: Topic) -> int:
        """Where a member starts that goes by the rules."""
        return self.committed.get(topic, 0)

    def commit(self, positions: Mapping[Topic, int], still_needed: Mapping[Topic, int | None]) -> None:
        """Of each of these topics: where it is still needed from, else as far as it was read."""
        for topic, low in still_needed.items():
            self.committed[topic] = positions[topic] if low is None else min(low, positions[topic])


@dataclass(slots=True)
class RunProgress:
    """How far a run has come."""

    now_s: float = 0.0
    calm: bool = False
    trace: list[str] | None = None
    fresh: int = 0
    rests: bool = False
    """Whether jobs that may rest do, as soon as they may."""
    passed_over: list[CancelContract] = field(default_factory=list[CancelContract])
    """Cancels of steps that a ledger reads no more, though the log that it has read says nothing of them."""


@dataclass(slots=True)
class SimulationSurroundings:
    """One partition of a run; `now_s` is the true time, which no actor sees."""

    tape: Tape
    scenario: Scenario
    log: SimLog
    redis: SimRedis
    external: SimulatedExternalSystem
    sent: Callable[[ExternalCall], None]
    """Told of every call before it goes out."""
    gate: str = "log"
    """What clears a call: `log` (the read-back); for ablations `none` or `redis`."""
    locks: str = "inherited"
    """Who holds the lock on a worker's name: its children too; for an ablation `own`."""
    rooted: bool = False
    """Whether the installation has a root, and its services sign."""
    activates: bool = False
    """Whether somebody activates policies."""
    mixed: bool = False
    """Whether some processes are of a newer version, which writes what those before can't read."""
    unserved: bool = False
    """Whether executors serve nothing for a while, or lack a tool."""
    number: int = 0
    """The partition's."""
    activations: ActivationWatch = field(init=False)
    rules: RulesWatch = field(default_factory=RulesWatch)
    progress: RunProgress = field(default_factory=RunProgress)
    index: dict[str, JobIndexEntry] = field(default_factory=dict[str, JobIndexEntry])
    offsets: dict[str, Offsets] = field(default_factory=dict[str, Offsets])
    pieces: defaultdict[Topic, list[Record]] = field(default_factory=lambda: defaultdict(list[Record]))
    """The topics of checkpoints."""
    read_pieces: dict[tuple[bytes | None, bytes], Piece] = field(
        default_factory=dict[tuple[bytes | None, bytes], Piece]
    )
    """What reading a piece, by key and value, gives: the same to all."""
    fates: list[CallFate] = field(default_factory=list[CallFate])
    """What is to become of the next calls, the last one first; the others go well."""
    broken: dict[str, CallFate] = field(default_factory=dict[str, CallFate])
    """What becomes of all calls of a tool."""
    asked: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By the name of a body: the calls that its code has asked for, in turn."""
    deployed: list[str] = field(default_factory=lambda: [AS_IT_WAS])
    """The edits of the workflows' code that executors were given; who starts has the last."""

    def __post_init__(self) -> None:
        self.activations = ActivationWatch(self.scenario.policy.hash)

    def beside(self, number: int, log: SimLog) -> "SimulationSurroundings":
        """Another partition of the same run."""
        made = replace(self, number=number, log=log, offsets={}, pieces=defaultdict(list))
        made.activations = self.activations
        return made

    @property
    def now_s(self) -> float:
        """The true time."""
        return self.progress.now_s

    @now_s.setter
    def now_s(self, value: float) -> None:
        self.progress.now_s = value

    @property
    def calm(self) -> bool:
        """No faults any more: whoever reads takes everything, calls go well."""
        return self.progress.calm

    def fresh(self, kind: str) -> str:
        """An id that was never given before."""
        self.progress.fresh += 1
        return f"{kind}{self.progress.fresh}"

    def fresh_secret(self) -> bytes:
        """What a try's words begin with: drawn from nothing else, since every run of a seed is the same."""
        return sha256(self.fresh("n").encode()).digest()

    @property
    def reach(self) -> int:
        """So many records below its mark are read again at a restart; where nobody signs, none."""
        return self.scenario.reach if self.rooted else 0

    @property
    def lasting(self) -> Lasting | None:
        """What goes wrong now and for ever."""
        return self.scenario.lasting if self.calm else None

    def say(self, text: str) -> None:
        """A line of the printed history."""
        if self.progress.trace is not None and text:
            self.progress.trace.append(f"{self.now_s:8.2f}  {text}")

    def records(self, *parties: Party, orders: RulesOrders | None = None) -> SimRecords:
        """What a process judges and signs records with that is these services, and has read these orders."""
        return SimRecords(keys_of(*parties) if self.rooted else UNSIGNED, self.number, orders)

    def group(self, role: str) -> Offsets:
        """The consumer group of a service."""
        found = self.offsets.get(role)
        if found is None:
            found = self.offsets[role] = Offsets()
        return found


@dataclass(slots=True)
class SkewedClock:
    """An actor's own clocks: both run true, neither shows the truth."""

    skew_s: float
    wall_off_s: float = 0.0
    """How far its time of day has been set since it was started."""

    def mono_s(self, around: SimulationSurroundings) -> float:
        """Its monotonic clock."""
        return around.now_s + self.skew_s

    def wall(self, around: SimulationSurroundings) -> datetime:
        """Its time of day."""
        return START + timedelta(seconds=around.now_s - self.skew_s / 7 + self.wall_off_s)

    def true_s(self, mono_s: float) -> float:
        """The true time at which its monotonic clock shows `mono_s`."""
        return mono_s - self.skew_s


def draw_clock(tape: Tape) -> SkewedClock:
    """A clock that is off by up to a minute and more."""
    return SkewedClock(float(tape.below(100)))


class SimulatedReader:
    """Positions in topics; `has_more`: something unread lies in one of them."""

    def __init__(self, around: SimulationSurroundings, positions: Mapping[Topic, int]) -> None:
        self.positions = dict(positions)
        self.has_more = False
        self._around = around
        for topic in positions:
            around.log.readers[topic].append(self)
        self._look()

    def read_all(self, topic: Topic) -> Sequence[Entry]:
        """Everything up to the end."""
        return self._take(topic, self._around.log.end(topic))

    def read(self) -> dict[Topic, Sequence[Entry]]:
        """A batch: everything that has arrived, or the first part of it, each topic for itself."""
        tape = self._around.tape
        whole = self._around.calm or not tape.chance(0.3)
        return {topic: self._take(topic, self._until(topic, whole=whole)) for topic in self.positions}

    def _until(self, topic: Topic, *, whole: bool) -> int:
        end = self._around.log.end(topic)
        unread = end - self.positions[topic]
        return end if whole or unread == 0 else self.positions[topic] + self._around.tape.below(unread + 1)

    def _take(self, topic: Topic, until: int) -> Sequence[Entry]:
        entries = self._around.log.topics[topic][self.positions[topic] : until]
        self.positions[topic] = until
        self._look()
        return entries

    def _look(self) -> None:
        log = self._around.log
        self.has_more = any(len(log.topics[topic]) > position for topic, position in self.positions.items())
