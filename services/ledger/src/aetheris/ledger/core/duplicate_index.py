"""Irreversible calls by what they mean, beyond their own job: under way, done, or not known; best effort; pure.

Each call has a line in its scope. Lines of a scope lie in one partition, so that everybody has them in one order: of
two calls that are under way, the one whose line came first goes on, and the other waits until that line says what
became of it. A call goes on only when its own line was read back, with what lies before it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aetheris.ledger.core.decisions import Now
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.state import JobState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.commands import ContentRecord, ContentState
from aetheris.protocol.messages.event_values import DuplicateOf
from aetheris.protocol.plan.graph import LONGEST_DUPLICATE_WINDOW_S


@dataclass(slots=True)
class DuplicateIndex:
    """The lines that stand, by scope in their order; one for a process, shared by its partitions."""

    _scopes: dict[str, dict[str, ContentRecord]] = field(default_factory=dict)
    _scopes_by_job: dict[str, dict[str, str]] = field(default_factory=dict)
    """Job → its calls that have a line, and where."""
    _claims: dict[str, dict[str, ContentRecord]] = field(default_factory=dict)
    """Job → lines that are written here, and were not read back: they order nothing, and must end with their calls."""

    def claim(self, line: ContentRecord) -> None:
        """A line is about to be written."""
        self._claims.setdefault(line.job_id, {})[line.execution_id] = line

    def take(self, line: ContentRecord) -> None:
        """A line was read; a call keeps its place among the others, and what became of it."""
        self._forget_claim(line)
        held = self.line(line.job_id, line.execution_id)
        if line.state == "open" and held is not None and held.state != "open":
            return  # of a ledger that has lost its partition: its owner says again how the call stands
        if line.state == "void":
            self.drop(line)
            return
        self._scopes.setdefault(line.scope_key, {})[line.execution_id] = line
        self._scopes_by_job.setdefault(line.job_id, {})[line.execution_id] = line.scope_key

    def drop(self, line: ContentRecord) -> None:
        """A line stands no more."""
        for index, name in ((self._scopes, line.scope_key), (self._scopes_by_job, line.job_id)):
            held = index.get(name)
            if held is not None:
                held.pop(line.execution_id, None)
                if not held:
                    del index[name]

    def _forget_claim(self, line: ContentRecord) -> None:
        claims = self._claims.get(line.job_id)
        if claims is not None:
            claims.pop(line.execution_id, None)
            if not claims:
                del self._claims[line.job_id]

    def line(self, job_id: str, execution: str) -> ContentRecord | None:
        """The line of a call, as it was read back."""
        scope = self._scopes_by_job.get(job_id, {}).get(execution)
        return self._scopes[scope][execution] if scope is not None else None

    def written(self, job_id: str, execution: str) -> ContentRecord | None:
        """The line of a call, read back or not."""
        return self.line(job_id, execution) or self._claims.get(job_id, {}).get(execution)

    def under_way(self, job_id: str) -> list[ContentRecord]:
        """The calls of a job that its lines say are under way, read back or not."""
        lines = (self._scopes[scope][name] for name, scope in self._scopes_by_job.get(job_id, {}).items())
        return [line for line in (*lines, *self._claims.get(job_id, {}).values()) if line.state == "open"]

    def open_lines(self) -> list[ContentRecord]:
        """All lines, read back, of calls that are under way."""
        return [line for lines in self._scopes.values() for line in lines.values() if line.state == "open"]

    def standing(self, job_id: str, scope: str) -> list[ContentRecord]:
        """The lines of other jobs in a scope, but for what has succeeded."""
        lines = self._scopes.get(scope, {}).values()
        return [line for line in lines if line.job_id != job_id and line.state != "succeeded"]

    def ahead(self, job_id: str, execution: str, scope: str) -> ContentRecord | None:
        """The first call of another job that is under way since before this one."""
        for line in self._scopes.get(scope, {}).values():
            if line.execution_id == execution:
                return None
            if line.job_id != job_id and line.state == "open":
                return line
        return None

    def others(self, job_id: str, scope: str, now: Now) -> Iterator[ContentRecord]:
        """The lines of other jobs in a scope, in their order; what is past its window is forgotten."""
        for line in tuple(self._scopes.get(scope, {}).values()):
            if line.job_id == job_id:
                continue
            if line.until is not None and datetime.fromisoformat(line.until) <= now.wall:
                self.drop(line)
            else:
                yield line


def scope_key(job: JobState, entry: PlanEntry, content_key: str, occurrence: int) -> str | None:
    """Where calls that mean the same meet; None where their own job is all that counts."""
    scope = entry.pin.duplicate_scope if entry.pin is not None else "job"
    if not entry.irreversible or scope == "job" or (scope == "session" and job.created.session is None):
        return None
    session = (job.created.session or "") if scope == "session" else ""
    parts = ("dup1", scope, job.created.tenant, session, content_key, str(occurrence))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def claim(job: JobState, node_id: str, key: str, scope: str, duplicates: DuplicateIndex) -> ContentRecord | None:
    """The line by which a call says that it is under way; None where that was read back."""
    execution = execution_id(job.job_id, node_id, key)
    if duplicates.line(job.job_id, execution) is not None:
        return None
    line = _line(job, node_id, scope, execution)
    duplicates.claim(line)
    return line


def settled(job: JobState, key: str, duplicates: DuplicateIndex, now: Now) -> ContentRecord | None:
    """What the line of a call that has just settled says from now on; None where it has none, and needs none."""
    state = job.keys[key]
    entry = job.entry(state.node_id)
    if entry is None or entry.pin is None or entry.pin.duplicate_scope == "job":
        return None
    execution = execution_id(job.job_id, state.node_id, key)
    held = duplicates.written(job.job_id, execution)
    kind: ContentState = "succeeded" if state.outcome is Settled.SUCCESS else "void" if state.sure else "unsure"
    scope = held.scope_key if held is not None else _scope_of(job, key, entry)
    if scope is None or (held is None and kind == "void") or (held is not None and held.state == kind):
        return None
    until = now.wall + timedelta(seconds=_window_s(entry.pin.duplicate_window_s))
    return _line(job, state.node_id, scope, execution).model_copy(update={"state": kind, "until": until.isoformat()})


def _window_s(said: float) -> float:
    """What a pin says, within what a tool may: a line of the registry that nobody checked may say anything."""
    return said if 0 < said <= LONGEST_DUPLICATE_WINDOW_S else LONGEST_DUPLICATE_WINDOW_S


def released(job: JobState, duplicates: DuplicateIndex) -> list[ContentRecord]:
    """The lines of calls that will never start, since their job has ended."""
    gone = {
        execution_id(job.job_id, state.node_id, key)
        for key, state in job.keys.items()
        if state.status is not KeyStatus.NONE
    }
    lines = (line for line in duplicates.under_way(job.job_id) if line.execution_id not in gone)
    return [line.model_copy(update={"state": "void"}) for line in lines]


def duplicate(
    job: JobState, entry: PlanEntry, content_key: str, duplicates: DuplicateIndex, now: Now
) -> DuplicateOf | None:
    """The call of another job that means the same and has succeeded, or of which nobody will know, in its window."""
    scope = scope_key(job, entry, content_key, entry.node.occurrence)
    for line in duplicates.others(job.job_id, scope, now) if scope is not None else ():
        if line.state in ("succeeded", "unsure"):
            return DuplicateOf(job_id=line.job_id, node_id=line.node_id, execution_id=line.execution_id)
    return None


def _line(job: JobState, node_id: str, scope: str, execution: str) -> ContentRecord:
    born = job.creation_offset
    return ContentRecord(
        scope_key=scope, job_id=job.job_id, node_id=node_id, execution_id=execution, creation_offset=born
    )


def _scope_of(job: JobState, key: str, entry: PlanEntry) -> str | None:
    started = job.keys[key].started
    return scope_key(job, entry, started.content_key, started.occurrence) if started is not None else None
