"""What of a job can be searched for, made of its records: names, labels, calls with their arguments, words.

Values that are hidden (`$hidden`) are left out, with what names them; results and answers are no part of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aetheris.protocol.messages.events import JobFailed
from aetheris.views.job_history import JobHistory

LONGEST_VALUE = 200
"""Characters of an argument's value that is found by itself; a longer one is found by its words."""
MOST_ARGUMENTS = 500
"""Of a job; the first ones."""
MOST_CALLS = 1_000
LONGEST_WORDS = 50_000
"""Characters of a job that words are taken from, of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchableArgument:
    """A number, text, true, false or null among a call's arguments; `value` as JSON has it, texts without quotes."""

    tool: str
    path: str
    """The names that lead there, with a point between; places in a list are left out."""
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchableJob:
    """A job as searches know it."""

    job_id: str
    tenant: str
    submitted_by: str
    agent: str
    """As the submission names it; may be empty."""
    labels: Mapping[str, str]
    calls: Sequence[tuple[str, str]]
    """(tool, the external system's id of what it did, or empty)."""
    arguments: Sequence[SearchableArgument]
    told: str
    """Words for all who may read the job: of its labels, steps, tools, external ids."""
    error: str
    payload: str
    """Words for who may read payloads: of its goal and arguments."""


def searchable(history: JobHistory) -> SearchableJob | None:
    """Of a job's history; None where nothing proves that it was created."""
    job = history.job
    if job is None or history.created is None:
        return None
    called = {call.node_id: call.args for call in history.calls.values()}
    external = {str(row["command_id"]): str(row.get("external_id", "")) for row in history.effects.rows}
    calls: list[tuple[str, str]] = []
    arguments: list[SearchableArgument] = []
    told = [f"{name} {value}" for name, value in (job.created.labels or {}).items()]
    for node_id, entries in list(job.entries.items())[:MOST_CALLS]:
        node = entries[-1].node
        calls.append((node.tool_name, external.get(node_id, "")))
        told += [node_id, node.tool_name, external.get(node_id, "")]
        args = called.get(node_id, node.args)
        arguments += [
            SearchableArgument(tool=node.tool_name, path=path, value=value) for path, value in _values("", args)
        ]
    payload = [job.created.goal or "", *(one.value for one in arguments)]
    return SearchableJob(
        job_id=job.job_id,
        tenant=job.created.tenant,
        submitted_by=job.created.submitted_by,
        agent=job.created.agent or "",
        labels=job.created.labels or {},
        calls=calls,
        arguments=[one for one in arguments if len(one.value) <= LONGEST_VALUE][:MOST_ARGUMENTS],
        told="\n".join(filter(None, told))[:LONGEST_WORDS],
        error=job.terminal.error[:LONGEST_WORDS] if isinstance(job.terminal, JobFailed) else "",
        payload="\n".join(filter(None, payload))[:LONGEST_WORDS],
    )


def _values(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """(path, value) of each; what begins with `$` (a reference, a hidden value) is none, and holds none."""
    if isinstance(value, Mapping):
        for name, one in cast("Mapping[str, Any]", value).items():
            if not name.startswith("$"):
                yield from _values(f"{path}.{name}" if path else name, one)
    elif isinstance(value, list | tuple):
        for one in cast("Sequence[Any]", value):
            yield from _values(path, one)
    elif isinstance(value, str):
        yield path, value
    else:
        yield path, json.dumps(value)
