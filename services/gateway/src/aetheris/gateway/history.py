"""What a job's records say together."""

from collections.abc import Iterable, Iterator

from aetheris.protocol import events as ev
from aetheris.protocol.envelope import Envelope, NeedsUpgrade, Undecodable, decode_event
from aetheris.protocol.fold import JobState, apply, birth
from aetheris.protocol.records import Record


def since_birth(records: Iterable[Record]) -> Iterator[Record]:
    """The records from the first job_created on: a job has no events before it."""
    born = False
    for record in records:
        born = born or record.header("ce_type") == b"io.aetheris.job_created.v1"
        if born:
            yield record


def fold_into(state: JobState | None, record: Record) -> JobState | None:
    """The job's state after one more record; None before its birth."""
    try:
        decoded = decode_event(record)
    except Undecodable:
        return state
    if isinstance(decoded, NeedsUpgrade) and state is not None:
        state.needs_upgrade = True
    if not isinstance(decoded, Envelope):
        return state
    if state is not None:
        apply(state, decoded.body, record.offset)
        return state
    return birth(decoded.body, record.offset) if isinstance(decoded.body, ev.JobCreated) else None
