"""Searches of jobs: what is asked, who asks, and the SQL that finds it; what a caller may not read finds nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from aetheris.gateway.core.cursors import place_at
from aetheris.gateway.core.principal import Principal
from aetheris.protocol.base.principals import Role

_MOST_TERMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """All of it must hold; what is None is not asked."""

    words: str | None = None
    """All of them, or what begins like them, in whatever the caller may read of the job."""
    job_id: str | None = None
    """Or its beginning."""
    external_id: str | None = None
    tool: str | None = None
    argument: tuple[str, str] | None = None
    """(path, value) of an argument; of `tool`, where that is asked too."""
    agent: str | None = None
    """Who submitted it, or the agent that the submission names."""
    label: tuple[str, str] | None = None
    status: str | None = None
    error: str | None = None
    """Words of it."""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def subject(self) -> str:
        """The list that a cursor leads on in."""
        return json.dumps(["search", asdict(self)], default=str)


def sql_of(asked: JobSearch, caller: Principal, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    """The statement and its parameters, for rows (job_id, status, created_at, submitted_by, labels as JSON).

    Raises:
        BadRequest: no cursor of this search of the caller's tenant.
    """
    found: list[tuple[str, list[Any]]] = [("job.tenant = ?", [_plain(caller.tenant)])]
    if cursor is not None:
        at, _, job_id = place_at(cursor, caller.tenant, asked.subject).partition("|")
        found.append(("(job.created_at, job.job_id) < (?, ?)", [at, job_id]))
    found += _conditions(asked, caller)
    text = " AND ".join(condition for condition, _ in found)
    parameters = [one for _, given in found for one in given]
    shown = "job.job_id, job.status, job.created_at, job.submitted_by, job.labels"
    order = "job.created_at DESC, job.job_id DESC"
    return f"SELECT {shown} FROM job WHERE {text} ORDER BY {order} LIMIT ?", [*parameters, limit]  # noqa: S608  no given text is in it


def _conditions(asked: JobSearch, caller: Principal) -> Iterator[tuple[str, list[Any]]]:
    reads, own = _payloads_of(caller)
    if asked.job_id is not None:
        begin = _plain(asked.job_id)
        yield "job.job_id >= ? AND job.job_id < ?", [begin, begin + "\U0010ffff"]
    if asked.status is not None:
        yield "job.status = ?", [asked.status]
    if asked.agent is not None:
        yield "(job.submitted_by = ? OR job.agent = ?)", [_plain(asked.agent)] * 2
    if asked.since is not None:
        yield "job.created_at >= ?", [moment(asked.since)]
    if asked.until is not None:
        yield "job.created_at < ?", [moment(asked.until)]
    if asked.label is not None:
        same = "SELECT n FROM label WHERE name = ? AND value = ?"
        yield f"job.n IN ({same})", [_plain(one) for one in asked.label]
    if asked.external_id is not None:
        yield "job.n IN (SELECT n FROM call WHERE external_id = ?)", [_plain(asked.external_id)]
    if asked.tool is not None:
        yield "job.n IN (SELECT n FROM call WHERE tool = ?)", [_plain(asked.tool)]
    if asked.argument is not None:
        path, value = asked.argument
        of_tool, named = ("", []) if asked.tool is None else (" AND tool = ?", [_plain(asked.tool)])
        same = f"SELECT n FROM argument WHERE path = ? AND value = ?{of_tool}"  # noqa: S608  nor here
        yield f"{reads} AND job.n IN ({same})", [*own, _plain(path), _plain(value), *named]
    if asked.error is not None:
        yield _MATCHES, [_terms("{error}", asked.error)]
    if asked.words is not None:
        told, whole = _terms("{told error}", asked.words), _terms("{told error payload}", asked.words)
        yield f"({_MATCHES} OR ({reads} AND {_MATCHES}))", [told, *own, whole]


_MATCHES = "job.n IN (SELECT rowid FROM words WHERE words MATCH ?)"


def _payloads_of(caller: Principal) -> tuple[str, list[Any]]:
    """The condition that the caller may read what a job says, beside how it stands; as `Principal.reads_payloads`."""
    if Role.READ_PAYLOADS in caller.roles:
        return "1", []
    if Role.SUBMIT in caller.roles:
        return "job.submitted_by = ?", [_plain(caller.id)]
    return "0", []


def _terms(columns: str, text: str) -> str:
    """As FTS5 has it: every word as a text of its own, so that nothing in it is an operator."""
    words = [word.replace('"', '""') for word in _plain(text).split()[:_MOST_TERMS]]
    return " AND ".join(f'{columns} : "{word}" *' for word in words)


def moment(when: datetime) -> str:
    """RFC 3339 in UTC with microseconds: sorts as text."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _plain(text: str) -> str:
    """A text that SQLite takes."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
