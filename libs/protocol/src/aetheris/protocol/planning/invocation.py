"""The call that a node makes, derived from the fold: the same in every service (docs/architecture.md, "A step")."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.hidden_values import MARK, HiddenPlace, InvalidHidden, by_meaning, hidden_places
from aetheris.protocol.base.keys import canonical_args, content_key_of_canonical, key_of_canonical
from aetheris.protocol.base.references import Reference, UnresolvedReference, point, resolve
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, PlanEntry, Settled
from aetheris.protocol.messages.event_values import After, BlobRef
from aetheris.protocol.plan.graph import AWAITED, dependencies, hides

Blobs = Mapping[str, Any]
"""sha256 → a large result, loaded."""


class NotReady(ValueError):
    """A node whose dependencies have no settled success yet."""


@dataclass(slots=True)
class Invocation:
    """One logical call: a node, with its arguments resolved."""

    node_id: str
    entry: PlanEntry
    args: dict[str, Any]
    args_hash: str
    key: str
    content_key: str
    after: tuple[After, ...]
    answered: tuple[HiddenPlace, ...] = ()
    """Where its arguments have what a person filled in, or a signal said, and the gateway has hidden."""

    @property
    def hidden(self) -> tuple[HiddenPlace, ...]:
        """The hidden values among its arguments that may be opened for it."""
        if not self.args:
            return ()
        return (*self.entry.node.hidden, *self.answered) if self.answered else self.entry.node.hidden


def uses(entry: PlanEntry) -> tuple[str, ...]:
    """The nodes whose results a node's arguments refer to."""
    if entry.node.is_plain:
        return ()
    return tuple(dict.fromkeys(reference.node_id for reference in entry.node.refs))


def needs(entry: PlanEntry) -> tuple[str, ...]:
    """The nodes that must be done before it."""
    return dependencies(entry.node)


def success(job: JobState, node_id: str) -> KeyState:
    """The settled success of a node.

    Raises:
        NotReady: there is none.
    """
    settled = job.settled_key(node_id)
    if settled is None or settled[1].outcome is not Settled.SUCCESS:
        raise NotReady(f"{node_id} has not succeeded")
    return settled[1]


def blobs_needed(job: JobState, entry: PlanEntry) -> tuple[BlobRef, ...]:
    """The large results that must be loaded before the node's arguments can be resolved.

    Raises:
        NotReady: a node it refers to has not succeeded.
    """
    if entry.node.is_plain or not entry.node.references:
        return ()
    found = (success(job, node_id).result_ref for node_id in uses(entry))
    return (*(ref for ref in found if ref is not None), *adopted_blobs(job, entry))


def adopted_blobs(job: JobState, entry: PlanEntry) -> tuple[BlobRef, ...]:
    """Of these, those that the job has adopted."""
    if entry.node.is_plain or not entry.node.adopted:
        return ()
    names = dict.fromkeys(one.node_id for one in entry.node.adopted)
    found = (job.created.adopted[name].result_ref for name in names if name in job.created.adopted)
    return tuple(ref for ref in found if ref is not None)


def adopted_results(job: JobState, entry: PlanEntry, blobs: Blobs) -> dict[str, Any]:
    """The results of earlier jobs that a node's arguments refer to, as they call them.

    Raises:
        UnresolvedReference: the job has not adopted it, or its result is not in the log.
    """
    if entry.node.is_plain:
        return {}
    return {one.node_id: _adopted_result(job, one.node_id, blobs) for one in entry.node.adopted}


def invocation(
    job: JobState, entry: PlanEntry, blobs: Blobs | None = None, after: tuple[After, ...] = ()
) -> Invocation:
    """The call that `entry` makes now; `after` is what a run's batch must prove.

    Raises:
        NotReady: a node it refers to has not succeeded.
        UnresolvedReference: a pointer leads nowhere.
        InvalidArgs: the resolved arguments have no canonical form.
    """
    held: Blobs = {} if blobs is None else blobs
    results = {node: _result(success(job, node), held) for node in uses(entry)}
    return call_with(job, entry, results | adopted_results(job, entry, held), after)


def call_with(job: JobState, entry: PlanEntry, results: Mapping[str, Any], after: tuple[After, ...] = ()) -> Invocation:
    """As `invocation`, with the results given (a run knows them before they are in the log)."""
    args, answered = arguments(job, entry, results)
    tool = entry.node.tool_name
    volatile = entry.pin.volatile if entry.pin is not None else ()
    canonical = canonical_args(args)
    meant = canonical if not volatile else canonical_args({k: v for k, v in args.items() if k not in volatile})
    if MARK in meant:
        meant = canonical_args(by_meaning({k: v for k, v in args.items() if k not in volatile}))
    return Invocation(
        node_id=entry.node.id,
        entry=entry,
        args=args,
        args_hash=hashlib.sha256(canonical).hexdigest(),
        key=key_of_canonical(job.job_id, entry.node.id, tool, canonical),
        content_key=content_key_of_canonical(job.created.tenant, tool, meant),
        after=after,
        answered=tuple(place for one in answered for place in _at(args, one.at)),
    )


def arguments(
    job: JobState, entry: PlanEntry, results: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Reference, ...]]:
    """(a node's arguments, of its references those that lead to answers which are hidden).

    Raises:
        UnresolvedReference: a pointer leads nowhere.
    """
    if entry.node.is_plain:
        return dict(entry.node.args), ()
    answered = tuple(_answered(job, entry)) if entry.node.refs else ()
    return resolve(entry.node.args, results, {one.target for one in answered} if answered else ()), answered


def _answered(job: JobState, entry: PlanEntry) -> Iterator[Reference]:
    """What of a node's references leads to an answer, or a part of a signal, that is hidden."""
    for one in entry.node.refs:
        asked = job.entry(one.node_id)
        if asked is not None and asked.node.kind in AWAITED and one.pointer in hides(asked.node):
            yield one


def _at(args: Any, at: str) -> Iterator[HiddenPlace]:
    try:
        yield from (HiddenPlace(at + one.at, one.value) for one in hidden_places(point(args, at, at)))
    except InvalidHidden:
        raise UnresolvedReference(at, "what was filled in or signalled there is no hidden value") from None


def key_in_force(job: JobState, node_id: str) -> str | None:
    """The key of the call that a node makes now; None where that does not follow without large results."""
    entry = job.entry(node_id)
    try:
        return invocation(job, entry).key if entry is not None else None
    except (NotReady, UnresolvedReference, InvalidArgs, KeyError):
        return None


def has_hidden(job: JobState, node_id: str) -> bool:
    """Whether a node's call has hidden values among its arguments, in whatever revision."""
    entries = job.entries.get(node_id, ())
    return any(entry.node.hidden or next(_answered(job, entry), None) is not None for entry in entries)


def is_done(job: JobState, node_id: str) -> bool:
    """Whether what depends on the node may run."""
    settled = job.settled_key(node_id)
    return settled is not None and settled[1].status is KeyStatus.SETTLED and settled[1].outcome is Settled.SUCCESS


def _adopted_result(job: JobState, name: str, blobs: Blobs) -> Any:
    known, one = job.created.continues, job.created.adopted.get(name)
    if known is None or one is None:
        raise UnresolvedReference(name, "the job has not adopted it")
    if one.result_ref is not None:
        return blobs[one.result_ref.sha256]
    if name not in known.results:
        raise UnresolvedReference(name, "its result is not in the job's log")
    return known.results[name]


def _result(state: KeyState, blobs: Blobs) -> Any:
    return blobs[state.result_ref.sha256] if state.result_ref is not None else state.result
