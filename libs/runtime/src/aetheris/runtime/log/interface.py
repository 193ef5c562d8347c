"""The seam to the log: what services need of Kafka, and no more (docs/architecture.md, "The log").

Two implementations stand behind it, `kafka.KafkaLog` and the test kit's `MemoryLog`; one suite runs against both.

    LogError
    ├── GroupTooLarge       nothing of the append was written
    ├── MixedGroup          a group spans topics or partitions; nothing was written
    ├── AppendRefused       the brokers will not have some groups; all others of the append are written
    ├── LogGap              an offset that the log no longer, or not yet, has
    ├── ArchiveUnusable     an archived job's records are gone from the log, and its bundle can not be had
    ├── LogUnreachable      a deadline passed; what was asked for is unknown
    └── MembershipLost      a commit came too late: others read these partitions now
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.tables.attendants import Attendant

Place = tuple[str, int]
"""A partition of a topic: (topic, partition)."""

Batch = dict[Place, list[Record]]
"""Records by the place that they lie in, in log order."""

Listener = Callable[[frozenset[int]], Awaitable[None]]
"""Told of partition numbers that came to this member, or that leave it."""

GAP_BELIEVED_S = 10.0
"""For so long a log must lack an offset, at every look, before that is believed: a leader that was paused, and wakes,
says so until it knows that others have led meanwhile."""

MAX_GROUP_BYTES = 900_000
"""What a group may weigh, overhead included: it must fit one record batch (the broker's limit is 1 MiB)."""


class LogError(Exception):
    """The log could not do what was asked."""

    code = "log_error"


class GroupTooLarge(LogError):
    """A group that does not fit one record batch; put large values into the blob store."""

    code = "group_too_large"


class MixedGroup(LogError):
    """A group that spans topics or partitions can't be written whole or not at all."""

    code = "mixed_group"


@dataclass(slots=True)
class RefusedGroup:
    """A group that was not written, and the error's name that the brokers gave."""

    group: Group
    why: str


class AppendRefused(LogError):
    """The brokers refuse some groups for what they hold: those were not written, all others of the append were."""

    code = "append_refused"

    def __init__(self, refusals: Sequence[RefusedGroup]) -> None:
        self.refusals = tuple(refusals)
        named = sorted({(one.group[0].topic, one.why) for one in self.refusals})
        super().__init__("; ".join(f"{topic}: {why}" for topic, why in named))


class LogGap(LogError):
    """The log does not have this offset: records are missing, and nothing may be concluded without them."""

    code = "log_gap"


class ArchiveUnusable(LogError):
    """A job's records are gone from the log, and no bundle that holds them can be had; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LogUnreachable(LogError):
    """The brokers did not answer within the deadline."""

    code = "log_unreachable"


class MembershipLost(LogError):
    """This member no longer owns what it wanted to commit."""

    code = "membership_lost"


@dataclass(slots=True)
class Written:
    """Drafts that were acknowledged together: they lie behind one another from offset `first` on."""

    place: Place
    first: int
    timestamp_ms: int
    drafts: Sequence[Draft]

    @property
    def following(self) -> int:
        """The offset behind the last of them."""
        return self.first + len(self.drafts)

    def records(self) -> list[Record]:
        """What a reader of the place gets."""
        topic, partition = self.place
        return [
            Record(topic, partition, at, self.timestamp_ms, draft.key, draft.headers, draft.value)
            for at, draft in enumerate(self.drafts, self.first)
        ]


class Writer(Protocol):
    """Takes groups; the part of an `Appender` that most of a service knows."""

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group."""
        ...


class Appender(Protocol):
    """Writes groups, for as long as it takes."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Write what is queued, as far as the deadline allows, and disconnect."""
        ...

    async def append(self, groups: Sequence[Group]) -> None:
        """Write every group; durable on every in-sync replica when it returns.

        Each group lies in one record batch, whole or not at all; groups of a partition keep their order, also
        across concurrent calls in the order of the calls. Tries for ever: a write whose fate is unknown is
        written again, so records may lie in the log twice. When cancelled, the groups may still be written.
        What the brokers refuse to this writer as a whole (see `refusals`) waits; it is written nowhere meanwhile.

        Raises:
            AppendRefused: some groups can't be written as they are; all others were.
            GroupTooLarge: nothing was written.
            MixedGroup: nothing was written.
        """
        ...

    def report(self, listener: Callable[[Written], None]) -> None:
        """From now on call `listener`, and no other, with what is acknowledged, before its `append` returns.

        Not with everything: of a batch whose first acknowledgement was lost, the place may not be known.
        """
        ...

    def stuck_s(self) -> float:
        """For how long the oldest unfinished group has been waiting, in seconds; 0.0 if none is."""
        ...

    def refusals(self) -> Mapping[str, str]:
        """Topics that take nothing of this writer now, and the error's name; they are asked again, ever more rarely."""
        ...


class Reader(Protocol):
    """Reads places that were assigned by hand; no group, no commits."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Disconnect."""
        ...

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these places from now on; places that were assigned before go to the new offset."""
        ...

    def add(self, positions: Mapping[Place, int]) -> None:
        """Read these too; the others keep their positions."""
        ...

    def remove(self, places: Collection[Place]) -> None:
        """Read these no longer."""
        ...

    def skip(self, place: Place, position: int) -> None:
        """Read the place from `position` on: what lies before it is known. (A place that isn't read stays so.)"""
        ...

    def pause(self, places: Collection[Place]) -> None:
        """Fetch nothing from these until `resume`; positions are kept."""
        ...

    def resume(self, places: Collection[Place]) -> None:
        """Fetch from these again."""
        ...

    async def position(self, place: Place) -> int:
        """The next offset that `poll` will look at; everything below was returned, or holds no record.

        Raises:
            LogUnreachable: the connection is broken.
        """
        ...

    async def poll(self, timeout_s: float, max_records: int = 2000) -> Batch:
        """Records that arrived, or nothing after `timeout_s`; none of a place where all that came was known already.

        Raises:
            LogGap: a place's offset is out of range.
            LogUnreachable: the connection is broken; make a new reader.
        """
        ...


class Membership(Protocol):
    """A member of a consumer group: says which partition numbers are ours and keeps our offsets; reads nothing."""

    async def start(self, assigned: Listener, revoked: Listener) -> None:
        """Join. `revoked` is awaited before others get the partitions; `assigned` must return soon."""
        ...

    async def stop(self, deadline_s: float = 5.0, *, leave: bool = False) -> None:
        """Go; `revoked` is called first. The partitions stay reserved for its return, unless it is said to leave."""
        ...

    async def keep(self) -> None:
        """Stay a member until cancelled.

        Raises:
            MembershipLost: another process took this member's name, or the group can't go on; end the process.
        """
        ...

    async def committed(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int | None]:
        """The group's offsets; None where it never committed one.

        Raises:
            LogUnreachable: not within the deadline.
        """
        ...

    async def noted(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, str]:
        """What was committed beside the group's offsets; empty where nothing was.

        Raises:
            LogUnreachable: not within the deadline.
        """
        ...

    async def commit(
        self, offsets: Mapping[Place, int], deadline_s: float = 10.0, *, notes: Mapping[Place, str] | None = None
    ) -> None:
        """Keep these offsets for whoever reads these places next, and beside them a note of what he must know.

        Raises:
            MembershipLost: somebody else owns them now.
            LogUnreachable: not within the deadline.
        """
        ...


class Tenure(Protocol):
    """Who had a stable name before, and keeps who has it now (log.names)."""

    @property
    def former(self) -> Collection[str]:
        """Member ids that are known to have ended."""
        ...

    def hold(self, incarnation: str) -> None:
        """Keep this member id for whoever has the name next."""
        ...


class Log(Protocol):
    """Makes the parts above; each connects when it is started. One for a process."""

    @property
    def session_timeout_s(self) -> float:
        """After how long without a word of it a member is taken for gone."""
        ...

    async def start(self) -> None:
        """Connect, for the questions below."""
        ...

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Disconnect; what was made lives on until it is stopped itself."""
        ...

    def appender(self) -> Appender:
        """A new appender; one for a process is enough."""
        ...

    def reader(self, max_wait_s: float = 0.1) -> Reader:
        """A new reader, whose fetches wait at the broker for `max_wait_s` where nothing is there yet."""
        ...

    def membership(self, group: str, member: str, topics: Collection[str], tenure: Tenure | None = None) -> Membership:
        """A member of `group` under the stable name `member`; all topics have equally many partitions.

        With a `tenure` it never takes its place back from another process of that name.
        """
        ...

    def attendance(self, group: str, name: str, topic: str) -> Membership:
        """A member of `group` that is there to be seen: it leaves when it stops, and robs nobody of its name."""
        ...

    async def members(self, group: str) -> Mapping[str, str]:
        """Those in `group` that have a stable name: member id → name.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        ...

    async def attendants(self, group: str) -> Mapping[str, Attendant]:
        """Those in `group`, by name; of one name, what all of them say.

        Raises:
            LogUnreachable: the brokers can't say, as where somebody who joins, or has died, keeps the group unsettled.
        """
        ...

    async def committed_by(self, group: str, places: Collection[Place]) -> Mapping[Place, int]:
        """What `group` has committed in these places, where it has.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        ...

    async def noted_by(self, group: str, places: Collection[Place]) -> Mapping[Place, str]:
        """What `group` has noted beside what it committed in these places, where it has committed.

        Raises:
            LogUnreachable: the brokers can't say.
        """
        ...

    async def cluster_id(self) -> str | None:
        """The name by which the brokers tell their cluster from any other; None where they have none.

        Raises:
            LogUnreachable: no answer.
        """
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            LogUnreachable: unknown topic, or no answer.
        """
        ...

    async def beginning_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        """The first offset that each place has.

        Raises:
            LogUnreachable: not within the deadline.
        """
        ...

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:
        """The offset that the next record of each place will get.

        Raises:
            LogUnreachable: not within the deadline.
        """
        ...
