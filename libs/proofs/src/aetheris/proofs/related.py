"""Jobs that begin each other, held against each other (docs/verification.md, "Jobs that jobs begin").

What a job says of one that it has begun, and that one of it, must be the same: the call, what follows from it, and how
it ended. Each job is judged by itself before.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from aetheris.proofs.begun import CONTINUE, START, child_of, is_of_its_call
from aetheris.proofs.canonical import hash_or_empty
from aetheris.proofs.continued import Link
from aetheris.proofs.records import Body, Fact, Violation, violation

_HANDED_DOWN = ("tenant", "submitted_by", "agent", "session", "labels", "options")
_NODE = "workflow"
_ENDED = "aetheris.ended."
_TOO_LARGE = "its result is too large for a record: a child job returns at most 64 KiB"


def related_violations(jobs: Sequence[Link]) -> Iterator[tuple[str, Violation]]:
    """What is wrong between jobs: (the job that says it, what). Each has begun by a call of another, or begins one."""
    known = {one.job_id: one for one in jobs}
    named = {str(_begun(one).get("job_id")) for one in jobs if _begun(one)}
    for job in jobs:
        created = job.validity.history.created
        if created is None:
            continue
        said = _begun(job)
        by, awaits = known.get(str(said.get("job_id"))), known.get(_awaited_by(said))
        if by is None and awaits is None and job.job_id not in named:
            yield job.job_id, violation("child_other", created, "no job that is here has begun it, or is begun by it")
        if by is not None or awaits is not None:
            yield from ((job.job_id, one) for one in _sealed(job, created))
        if by is not None:
            yield from ((job.job_id, one) for one in _of_call(job, by, created, said))
        if awaits is not None:
            yield from ((awaits.job_id, one) for one in _told(job, awaits))


def children_of(job: Link) -> list[str]:
    """The jobs that its calls have begun, in the order of its plan."""
    found = (child_of(job.job_id, node) for node in _calls(job, START) if _succeeded(job, node) is not None)
    return list(found)


def _sealed(job: Link, created: Fact) -> Iterator[Violation]:
    if not job.report.seal.ok:
        yield violation("child_not_sealed", created, f"job {job.job_id} has no seal that holds")


def _of_call(job: Link, by: Link, created: Fact, said: Body) -> Iterator[Violation]:
    """It began by a call that has succeeded there, as all that follows from that call."""
    node, replaces = str(said.get("node_id")), said.get("replaces") is True
    tool = CONTINUE if replaces else START
    settled = _succeeded(by, node) if node in _calls(by, tool) else None
    counts = settled is not None and settled.key == said.get("idempotency_key")
    if not counts or not is_of_its_call(created.body, created.body.get("plan")):
        yield violation("child_unfounded", created, f"no call of job {by.job_id} that has succeeded has begun it")
    elif replaces and job.job_id != _successor(by):
        yield violation("child_unfounded", created, f"job {by.job_id} has not completed, or goes on as another job")
    elif not replaces and settled is not None and settled.body.get("result") != job.job_id:
        yield violation("child_unfounded", created, f"the call of job {by.job_id} names another job")
    above = _begun(by)
    if not _is_as_deep(said, above, 0 if replaces and above else 1):
        yield violation("child_differs", created, "depth: more or fewer jobs stand above it")
    awaited_by = _awaited_by(above) if replaces else by.job_id
    if _awaited_by(said) not in ("", awaited_by) or (replaces and _awaited_by(said) != awaited_by):
        yield violation("child_differs", created, "awaited_by: another job is told how it ends")
    parent = by.validity.history.created
    for name in _HANDED_DOWN:
        if parent is None or hash_or_empty(created.body.get(name)) != hash_or_empty(parent.body.get(name)):
            yield violation("child_differs", created, f"{name}: is not that of job {by.job_id}")
    if hash_or_empty(_tools(created)) != hash_or_empty(_tools(parent)):
        yield violation("child_differs", created, f"plan.tools: is not what job {by.job_id} has pinned")


def _is_as_deep(said: Body, above: Body, deeper: int) -> bool:
    depths = (said.get("depth", 1), above.get("depth", 1) if above else 0)
    return all(type(one) is int for one in depths) and depths[0] == depths[1] + deeper


def _told(job: Link, awaits: Link) -> Iterator[Violation]:
    """What the other one says of its end is how it has ended."""
    key, facts = f"{_ENDED}{job.job_id}", awaits.validity.history.facts
    heard = [one for one in facts if one.text("correlation_key") == key]
    signal = next((one for one in heard if one.type == "signal_received"), None)
    if signal is not None and hash_or_empty(signal.body.get("payload")) != hash_or_empty(_end_of(job)):
        yield violation("child_end", signal, f"what it says of the end of job {job.job_id} is not how that has ended")
    for waiting in heard:
        end = awaits.validity.history.wait_end(waiting.node, len(facts)) if waiting.type == "job_waiting" else None
        if end is not None and (signal is None or _payload(end) != _payload(signal)):
            yield violation("child_end", end, f"what is told of the end of job {job.job_id} is not what came of it")


def _end_of(job: Link) -> Mapping[str, Any] | None:
    """What is to be told of its end; None where it has none."""
    end = job.validity.history.end
    if end is None:
        return None
    said: dict[str, Any] = {"job_id": job.job_id}
    if end.type == "job_failed":
        return said | {"status": "failed", "error": end.body.get("error")}
    if end.type != "job_completed":
        return said | {"status": "cancelled", "error": end.text("reason") or "cancelled"}
    following, result = _successor(job), _mapping(end.body.get("result"))
    if following:
        return said | {"status": "completed", "continued_as": following}
    if _NODE not in result:
        return said | {"status": "completed", "error": _TOO_LARGE}
    return said | {"status": "completed", "result": result[_NODE]}


def _successor(job: Link) -> str:
    """The job that goes on in its place; "" where there is none."""
    end = job.validity.history.end
    if end is None or end.type != "job_completed":
        return ""
    nodes = (node for node in _calls(job, CONTINUE) if _succeeded(job, node) is not None)
    return next((child_of(job.job_id, node) for node in nodes), "")


def _calls(job: Link, tool: str) -> list[str]:
    """The nodes of its bodies' calls of a tool, in the order in which they were planned first."""
    plans = job.validity.history.plans
    nodes = dict.fromkeys(fact.node for fact in job.validity.history.calls_planned)
    return [node for node in nodes if plans.is_call(node) and plans.node(node, 0).get("tool") == tool]


def _succeeded(job: Link, node: str) -> Fact | None:
    finals = (job.validity.final(key) for key in job.validity.keys_of_node(node))
    return next((one.fact for one in finals if one is not None and one.succeeded), None)


def _begun(job: Link) -> Body:
    created = job.validity.history.created
    return _mapping(created.body.get("begun")) if created is not None else {}


def _awaited_by(begun: Body) -> str:
    awaited = begun.get("awaited_by")
    return str(_mapping(awaited).get("job_id")) if awaited is not None else ""


def _tools(created: Fact | None) -> Any:
    return _mapping(created.body.get("plan")).get("tools") if created is not None else None


def _payload(fact: Fact) -> str:
    return hash_or_empty(fact.body.get("payload"))


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, dict) else {}
