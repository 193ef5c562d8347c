"""What the planner decides, as data: the edge appends it (docs/architecture.md, "planner")."""

from dataclasses import dataclass

from aetheris.protocol.base.ids import derived
from aetheris.protocol.messages.commands import JobBehind, JobCommand, JobIndexEntry, JobPlaced, ToolRequest
from aetheris.protocol.messages.event_values import BlobRef
from aetheris.protocol.messages.events import Event


@dataclass(slots=True)
class NewEvent:
    """An event to be appended; `cause` makes its id, `key` names the invocation whose trace it belongs to."""

    event: Event
    cause: tuple[str, ...]
    key: str | None = None


@dataclass(slots=True)
class Append:
    """Events of one job that are written whole or not at all."""

    facts: tuple[NewEvent, ...]


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """ "These nodes may run next"; `key` is the head's, where its arguments could be resolved here."""

    body: ToolRequest
    key: str | None


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """A job's line in jobs.index."""

    entry: JobIndexEntry


@dataclass(frozen=True, slots=True)
class Behind:
    """What jobs.index says of a sealed job beside its line: records of it came behind its seal."""

    entry: JobBehind


@dataclass(frozen=True, slots=True)
class LoadArguments:
    """A ready node whose arguments refer to large results: load them, then ask `Partition.resolved`."""

    job_id: str
    node_id: str
    refs: tuple[BlobRef, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """A word to the planner, or the ledger, of another job; `by_job`: in whose log it stands why."""

    command: JobCommand
    by_job: str


@dataclass(frozen=True, slots=True)
class Place:
    """A word of this partition: the job is created elsewhere. Its submission is passed on when that is folded."""

    barrier: JobPlaced


def tell_id(word: Tell) -> str:
    """The id of the command: said again, it is the same, so that what it causes is caused once."""
    return derived("told", word.command.type_name, word.by_job, word.command.job_id)


Output = Append | NodesRequest | IndexUpdate | Behind | LoadArguments | Tell | Place


@dataclass(slots=True)
class Joined:
    """A node that started within a run, without a request of its own."""

    key: str
    job_id: str
    node_id: str


@dataclass(frozen=True, slots=True)
class RefusedSubmission:
    """A submission that no job can come of."""

    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """A submission that continues a job: read that one's stream, then ask `Partition.looked_up`."""

    job_id: str


@dataclass(frozen=True, slots=True)
class SubmissionConflict:
    """A known job_id submitted again with another request: the job that stands goes on."""


def fact(event: Event, *cause: str, key: str | None = None) -> Append:
    """A group of one event."""
    return Append((NewEvent(event, cause, key),))
