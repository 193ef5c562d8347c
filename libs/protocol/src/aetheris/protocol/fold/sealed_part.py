"""What of a job's records counts where it is sealed: what was sealed, and what came later and is proved."""

from collections.abc import Iterator, Sequence

from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent, is_sealed_by, logged_events
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via

_OWN_WORD = frozenset({Via.EXECUTOR, Via.LATE, Via.CATCH_UP})
_SEALED = b"io.aetheris.job_sealed.v1"
_CERTIFICATE = b'"certificate":'


def as_sealed(records: Sequence[Record]) -> Sequence[Record]:
    """A job's records, with those emptied that lie behind what its first seal covers and are no late facts.

    An empty record is void to whoever reads it, and keeps its place and number. Whose the seal is, the verifier judges;
    of a job without one that fits its records, all are as they are.
    """
    if not any(record.header("ce_type") == _SEALED for record in records[:-1]) and not _may_leave_out(records):
        return records
    logged = list(logged_events(records))
    before = len(records) - len(logged)
    count = _sealed_count(records[before:], logged)
    if count is None:
        return records
    kept = {one.record.offset for one in _late_facts(logged, count)}
    begin = before + count
    return [*records[:begin], *(_shown(one, kept) for one in logged[count:] if one.sequence is not None)]


def _shown(one: LoggedEvent, kept: set[int]) -> Record:
    """As it is, or void under its own number: as if it said nothing but where it lies."""
    record = one.record
    return record if record.offset in kept else record.replaced(value=b"behind %d" % record.offset)


def _may_leave_out(records: Sequence[Record]) -> bool:
    """Whether the last record is a seal that may not cover all before it."""
    if not records or records[-1].header("ce_type") != _SEALED:
        return False
    return b'"event_count":%d,' % (len(records) - 1) not in records[-1].value


def _sealed_count(records: Sequence[Record], logged: Sequence[LoggedEvent]) -> int | None:
    """How many records the first seal covers that is its writer's, lies behind the job's end, and fits them."""
    end: int | None = None
    for at, one in enumerate(logged):
        if end is None and isinstance(one.event, ev.TERMINAL):
            end = at
        if (
            end is not None
            and isinstance(one.event, ev.JobSealed)
            and one.event.amends is None
            and is_sealed_by(one.event, records, end, at)
        ):
            return one.event.event_count
    return None


def _late_facts(logged: Sequence[LoggedEvent], count: int) -> Iterator[LoggedEvent]:
    """Behind: ends of tries, by their word or signed; their commits; what is signed of effects; seals."""
    created = next((one.event for one in logged if isinstance(one.event, ev.JobCreated)), None)
    signed = created is not None and created.installation is not None
    ended: set[tuple[str, str | None]] = set()
    for one in logged[count:]:
        match one.event:
            case ev.ToolInvocationFinished() as end if signed or end.via in _OWN_WORD:
                ended.add((end.idempotency_key, end.output_hash))
                yield one
            case ev.CommandCommitted() as commit if (commit.idempotency_key, commit.output_hash) in ended:
                yield one
            case ev.EffectConfirmed() | ev.ConfirmationFailed() | ev.ViolationFound() if signed:
                yield one
            case ev.JobSealed():
                yield one
            case ev.InvocationProbed() if signed and _CERTIFICATE in one.record.value:
                yield one  # no fact of the job, but what its writer says later is known by it
            case _:
                pass
