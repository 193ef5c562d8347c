"""A job's records, one after another: numbered, decoded, folded."""

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.signing import payload_said
from aetheris.protocol.fold.provenance import JobSigners, Provenance, Standing
from aetheris.protocol.fold.reports import is_proved_doubt, is_proved_end
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event
from aetheris.protocol.messages.events import Event

_BIRTH = b"io.aetheris.job_created.v1"
_SEALED = b"io.aetheris.job_sealed.v1"
_ENDS = frozenset(f"io.aetheris.job_{end}.v1".encode() for end in ("completed", "failed", "cancelled"))


class Sequence:
    """A job's records in order, numbered from 1; a repeat has no number.

    A repeat has the event_id, the type and the payload of one before it, and counts as that one does or does not: an
    event_id is no writer's word, so nobody hides a record by bringing its id sooner.
    Under whatever root its birth names: what counts of a signed job is said by its own records alone.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._provenance = Provenance()
        self.last = 0

    def number(self, record: Record, *, counts: bool) -> int | None:
        """The record's place among the job's; None for a repeat."""
        repeats = _repeats(record, counts)
        if repeats in self._seen:
            return None
        self._seen.add(repeats)
        self.last += 1
        return self.last

    def counts(self, record: Record, event: Event | NeedsUpgrade | None) -> bool:
        """Whether it is an event that is proved its writer's, where that is asked for.

        Each record is asked about once, in order.
        """
        if not isinstance(event, Event) or self._provenance.judge(record, event) is not Standing.COUNTS:
            return False
        match event:
            case ev.ToolInvocationFinished():
                return is_proved_end(event)
            case ev.InvocationInDoubt():
                return is_proved_doubt(event)
            case _:
                return True

    def signers_of(self, job_id: str) -> JobSigners | None:
        """By what the job's records are known, as far as they were asked about; None where they are not signed."""
        return self._provenance.signers_of(job_id)


def text_of(header: bytes | None) -> str:
    """A header as text; what is missing is empty."""
    return (header or b"").decode(errors="replace")


def event_type_of(record: Record) -> str:
    """The snake_case name in ce_type; empty where there is none."""
    parts = text_of(record.header("ce_type")).split(".")
    return parts[2] if len(parts) == 4 else ""


def since_creation(records: Iterable[Record]) -> Iterator[Record]:
    """The records from the first job_created on: a job has no events before it."""
    created = False
    for record in records:
        created = created or record.header("ce_type") == _BIRTH
        if created:
            yield record


def holds_what_was_sealed(records: list[Record]) -> bool:
    """Whether these are all records of a job up to its first seal: by the tree that this seal gives of what it covers.

    Whose seal that is, the verifier judges.
    """
    types = [record.header("ce_type") for record in records]
    at = types.index(_SEALED) if _SEALED in types else 0
    end = next((place for place, one in enumerate(types[:at]) if one in _ENDS), None)
    if end is None:
        return False
    try:
        return is_sealed_by(ev.JobSealed.read(records[at].value), records, end, at)
    except ValueError:
        return False


def is_sealed_by(seal: ev.JobSealed, records: abc.Sequence[Record], end: int, at: int) -> bool:
    """Whether a seal, itself the record at `at`, is over the first of these, the job's end at `end` among them."""
    return end < seal.event_count <= at and tree_over(records[: seal.event_count]).hex() == seal.tree


def fold_into(state: JobState | None, record: Record, numbers: Sequence) -> JobState | None:
    """The job's state after one more record, behind those that `numbers` has seen; None before its birth."""
    return fold_event(state, next_logged_event(numbers, record).event, record.offset)[0]


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A record of a job with its place in it; `sequence` is None for a repeat."""

    sequence: int | None
    record: Record
    event: Event | NeedsUpgrade | None
    """None for what this version doesn't know, or can't decode, and for what is not proved its writer's."""

    @property
    def is_void(self) -> bool:
        """Whether nobody is to take it for an event of its type: not proved its writer's, or not to be read here."""
        return not isinstance(self.event, Event)

    @property
    def id(self) -> str:
        """The event_id."""
        return text_of(self.record.header("ce_id"))

    @property
    def type(self) -> str:
        """The event_type."""
        return event_type_of(self.record)

    @property
    def time(self) -> str:
        """When its writer wrote it, by its own clock."""
        return text_of(self.record.header("ce_time"))

    def named(self) -> dict[str, Any]:
        """What points at it: {seq, id, type, time, offset}."""
        offset = self.record.offset
        return {"seq": self.sequence, "id": self.id, "type": self.type, "time": self.time, "offset": offset}


def logged_events(records: Iterable[Record]) -> Iterator[LoggedEvent]:
    """A job's events from its birth on, as the API numbers them."""
    numbers = Sequence()
    for record in since_creation(records):
        yield next_logged_event(numbers, record)


def next_logged_event(numbers: Sequence, record: Record) -> LoggedEvent:
    """The next record of a job, behind those that were numbered before."""
    event = _decoded(record)
    counts = numbers.counts(record, event)
    shown = event if counts or isinstance(event, NeedsUpgrade) else None
    return LoggedEvent(numbers.number(record, counts=counts), record, shown)


def fold_event(state: JobState | None, event: Event | NeedsUpgrade | None, offset: int) -> tuple[JobState | None, bool]:
    """(the job's state after one more event, whether it counts: a void one changes nothing)."""
    if isinstance(event, NeedsUpgrade):
        if state is not None:
            state.needs_upgrade = True
            state.unread = state.unread or f"{event.what} (offset {offset})"
        return state, state is not None
    if event is None:
        return state, False
    if state is not None:
        return state, apply(state, event, offset)
    return (create_job(event, offset), True) if isinstance(event, ev.JobCreated) else (None, False)


def moment_of(text: str) -> datetime | None:
    """A time (RFC 3339; without an offset it is UTC); None for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _repeats(record: Record, counts: bool) -> bytes:
    """What it has in common with its repeats; without an id, with none."""
    event_id, event_type = record.identity()
    named = event_id or b"%d:%d" % (record.partition, record.offset)
    said = payload_said(record.value) if counts else record.value
    return sha256(b"\0".join((b"%d" % counts, named, event_type or b"", said))).digest()


def _decoded(record: Record) -> Event | NeedsUpgrade | None:
    try:
        decoded = decode_event(record)
    except Undecodable:
        return None
    if isinstance(decoded, Envelope):
        return decoded.body
    return decoded if isinstance(decoded, NeedsUpgrade) else None
