"""Irreversible calls that were done, by what they mean, beyond their own job: best effort; pure."""

import hashlib
from collections.abc import MutableMapping
from datetime import datetime, timedelta

from aetheris.ledger.core.decisions import Now
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import Entry, JobState, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import ContentRecord

Contents = MutableMapping[str, ContentRecord]
"""By `scope_key`; one for a process, shared by its partitions."""


def scope_key(job: JobState, entry: Entry, content_key: str, occurrence: int) -> str | None:
    """Where calls that mean the same meet; None where their own job is all that counts."""
    scope = entry.pin.duplicate_scope if entry.pin is not None else "job"
    if not entry.irreversible or scope == "job" or (scope == "session" and job.created.session is None):
        return None
    session = (job.created.session or "") if scope == "session" else ""
    parts = ("dup1", scope, job.created.tenant, session, content_key, str(occurrence))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def done(job: JobState, key: str, contents: Contents, now: Now) -> ContentRecord | None:
    """The line of a call that has just succeeded; None where it guards nothing, or has its line already."""
    state = job.keys[key]
    entry = job.entry(state.node_id)
    if entry is None or entry.pin is None or entry.pin.duplicate_scope == "job":
        return None
    if state.outcome is not Settled.SUCCESS or state.started is None:
        return None
    where = scope_key(job, entry, state.started.content_key, state.started.occurrence)
    execution = execution_id(job.job_id, state.node_id, key)
    held = contents.get(where) if where is not None else None
    if where is None or (held is not None and (held.execution_id == execution or _holds(held, now))):
        return None
    until = now.wall + timedelta(seconds=entry.pin.duplicate_window_s)
    record = ContentRecord(
        scope_key=where, job_id=job.job_id, node_id=state.node_id, execution_id=execution, until=until.isoformat()
    )
    contents[where] = record
    return record


def duplicate(job: JobState, entry: Entry, content_key: str, contents: Contents, now: Now) -> ev.DuplicateOf | None:
    """The call of another job that means the same, within its window; what is past it is forgotten."""
    where = scope_key(job, entry, content_key, entry.node.occurrence)
    found = contents.get(where) if where is not None else None
    if where is None or found is None or found.job_id == job.job_id:
        return None
    if not _holds(found, now):
        del contents[where]
        return None
    return ev.DuplicateOf(job_id=found.job_id, node_id=found.node_id, execution_id=found.execution_id)


def _holds(line: ContentRecord, now: Now) -> bool:
    return datetime.fromisoformat(line.until) > now.wall
