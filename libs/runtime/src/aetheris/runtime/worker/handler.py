"""What a service gives to the partition worker: what it reads, and one handler per partition."""

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from aetheris.protocol.base.job_table import NONE_AT_REST, Resting
from aetheris.protocol.base.records import Group, Record
from aetheris.protocol.base.topics import Topic


class Cadence(StrEnum):
    """How soon a topic's records are wanted."""

    EAGER = "eager"
    OWN = "own"
    """In pauses, and at once up to what this process has appended itself."""
    LAZY = "lazy"


@dataclass(frozen=True)
class Inputs:
    """What a service reads."""

    commands: Mapping[Topic, Cadence] = field(default_factory=dict[Topic, Cadence])
    authority: Topic = Topic.JOBS_EVENTS
    """What is folded from the oldest that `live` still needs on, before anything is handled."""
    authority_cadence: Cadence = Cadence.LAZY
    tables: tuple[Topic, ...] = ()
    rows: Mapping[Topic, Callable[[], MutableMapping[str, bytes]]] = field(
        default_factory=dict[Topic, Callable[[], MutableMapping[str, bytes]]]
    )
    """Where a table's rows are kept, if not in a dictionary."""
    quarantines: frozenset[Topic] = frozenset()
    """Topics whose undecodable records this service puts into the DLQ, where it is the one that decodes them."""
    made_again: frozenset[Topic] = frozenset()
    """Topics of commands whose writers make again what is still wanted: what retention has deleted is not missed."""
    reach: int = 0
    """So far below what is needed the mark stays: of so many records who restarts knows which jobs there were."""
    checkpoints: Topic | None = None
    checkpoint_every: int = 0
    """After how many records of a partition old jobs get a checkpoint; 0: this service only reads them."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Authority, commands and checkpoints, in the order in which a batch has them."""
        return (self.authority, *self.commands, *(() if self.checkpoints is None else (self.checkpoints,)))

    def cadence(self, topic: str) -> Cadence:
        """How soon `topic` is wanted."""
        if topic == self.authority:
            return self.authority_cadence
        return Cadence.LAZY if topic == self.checkpoints else self.commands[Topic(topic)]


class PartitionHandler(Protocol):
    """A service's part in one partition; inherit from it for the defaults. Calls never overlap."""

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output. First that of jobs from their checkpoints, one after the other."""
        ...

    def handled_before(self, offset: int) -> None:  # noqa: ARG002  not everyone would say again what he has said
        """Whoever had the partition before has handled the authority up to this record, and written what it caused.

        Called before anything is folded, where that is known.
        """
        return

    def begin(self, start: int, live: Collection[tuple[str, int]] = ()) -> None:  # noqa: ARG002  not everyone compares offsets
        """All that lies below `start` and concerns a live job was folded; what is folded from now on lies behind.

        `live`: of jobs that have a checkpoint of the service's own, each with its birth, of which nothing lies below
        `start`.
        """
        return

    async def learn(self) -> None:
        """Know what lies elsewhere in the log as of now: once the mark is known, and again before `restored`.

        Raises:
            LogUnreachable: it is asked for again.
        """
        return

    async def restored(self) -> None:
        """History was read to its end: act on what is open."""
        ...

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """What arrived, by topic, the authority first; returns when the outputs it causes are appended."""
        ...

    async def tick(self) -> None:
        """A time given to `PartitionWorker.call_at` has come."""
        return

    def rest(self) -> Resting:
        """Now and then, between two calls: what nobody has asked for in a while may be kept as less; what is so now."""
        return NONE_AT_REST

    def rest_on_the_way(self) -> None:
        """Now and then, while history is read: the same, for who need not go through all jobs when it is."""
        return

    def live(self) -> Iterable[tuple[str, int]]:
        """The jobs whose records are still needed, each with its birth."""
        ...

    def checkpointed(self, job_id: str, state_hash: str, as_of: int) -> Group:  # noqa: ARG002  nobody has to be told
        """What the log is to say of a checkpoint that was written: one group; empty for nothing."""
        return ()

    def low_water(self, topic: str) -> int | None:  # noqa: ARG002  the default has no open commands
        """The lowest offset of a topic that is not yet discharged, of the authority beside what `live` needs.

        None: nothing below the position.
        """
        return None

    async def close(self) -> None:
        """The partition was revoked or the service stops: finish what runs."""
        return


HandlerFactory = Callable[[int], PartitionHandler]
