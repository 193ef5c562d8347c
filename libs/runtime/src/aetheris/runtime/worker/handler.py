"""What a service gives to the partition worker: what it reads, and one handler per partition."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from aetheris.protocol.base.records import Record
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
    authority_cadence: Cadence = Cadence.LAZY
    tables: tuple[Topic, ...] = ()
    rows: Mapping[Topic, Callable[[], MutableMapping[str, bytes]]] = field(
        default_factory=dict[Topic, Callable[[], MutableMapping[str, bytes]]]
    )
    """Where a table's rows are kept, if not in a dictionary."""
    quarantines: frozenset[Topic] = frozenset()
    """Topics whose undecodable records this service puts into the DLQ, where it is the one that decodes them."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Authority and commands, in the order in which a batch has them."""
        return (self.authority, *self.commands)

    def cadence(self, topic: str) -> Cadence:
        """How soon `topic` is wanted."""
        return self.authority_cadence if topic == self.authority else self.commands[Topic(topic)]


class PartitionHandler(Protocol):
    """A service's part in one partition; inherit from it for the defaults. Calls never overlap."""

    async def prepare(self, mark: int) -> int:
        """Load snapshots; the offset to read from: the least of `mark` and their as_of."""
        return mark

    def fold(self, records: Sequence[Record]) -> None:
        """History, in log order: causes no output."""
        ...

    async def restored(self) -> None:
        """History was read to its end: act on what is open."""
        ...

    async def handle(self, batch: Mapping[str, Sequence[Record]]) -> None:
        """What arrived, by topic, the authority first; returns when the outputs it causes are appended."""
        ...

    async def tick(self) -> None:
        """A time given to `PartitionWorker.call_at` has come."""
        return

    def mark(self) -> int | None:
        """The lowest offset of the authority that is still needed: the birth of the oldest live job.

        None: nothing below the position is.
        """
        ...

    def low_water(self, topic: str) -> int | None:  # noqa: ARG002  the default has no open commands
        """The lowest offset of a command topic that is not yet discharged; None: nothing below the position."""
        return None

    async def close(self) -> None:
        """The partition was revoked or the service stops: finish what runs."""
        return


HandlerFactory = Callable[[int], PartitionHandler]
