"""What an agent submits over MCP: a submission that means the same as an earlier one is that one (docs/mcp.md)."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from aetheris.protocol.base.canonical import digest
from aetheris.protocol.base.references import REF
from aetheris.protocol.plan.graph import Node, TaskGraph
from aetheris.sdk.client import AsyncClient, Goal, Submitted
from aetheris.sdk.equal_calls import (
    EqualCallKey,
    check_callable,
    found,
    is_unknown,
    meant,
    place_of_repeat,
    took_nothing,
)

_DONE = (
    "The same was submitted before: this is its job, and nothing was started. Another job would do the same again, "
    "which only your user can want."
)
_UNKNOWN = (
    "The same was submitted before: this is its job. Nobody knows whether a step of it took effect; a human decides "
    "what becomes of it, and it is not done again."
)
_IN_PART = (
    "The same was submitted before: this is its job. It failed when a part of it was done, and is not done again."
)
_NO_MORE = "The same was submitted before, and has failed each time without an effect: it is not done again."

_NO_MEANING = {"occurrence", "retry", "irreversible"}
"""Of a step: what an agent may say or leave out, and calls the same."""

Registry = Mapping[str, Mapping[str, Any]]
"""Tool name → its entry."""


class NameTaken(ValueError):
    """A name that the agent gave to another submission."""


class Submissions:
    """Those of one run of an agent: what they mean names their jobs, so a server that starts anew finds them."""

    def __init__(self, client: AsyncClient, run: str) -> None:
        self._client = client
        self._run = run
        self._names: dict[str, str] = {}

    async def submit(
        self,
        name: str,
        wanted: Mapping[str, Any] | Goal,
        options: Mapping[str, Any] | None = None,
        repeat_of: str | None = None,
    ) -> dict[str, Any]:
        """{job_id, status, note?}: of a new job, or of the one that stands for what is wanted.

        Raises:
            NameTaken, NoSuchCall, PersonalTool, InvalidArgs, ApiError: nothing was submitted.
        """
        registry = {str(entry["name"]): entry for entry in await self._client.tools()}
        for tool in () if isinstance(wanted, Goal) else _tools(wanted.get("nodes")):
            check_callable(tool, registry.get(tool, {}).get("schema", {}))
        content = wanted.body() if isinstance(wanted, Goal) else by_meaning(wanted, registry)
        if self._names.setdefault(name, digest(content)) != digest(content):
            raise NameTaken
        # what only reads may be asked for again: under another name it is another job
        called = [name] if only_reads(wanted, registry) else []
        place = EqualCallKey(digest(["mcp", self._run, content, *called]))
        if repeat_of is not None:
            place = await place_of_repeat(self._client, place, repeat_of)

        async def submit(key: str, occurrence: int) -> Submitted:
            plan = wanted if isinstance(wanted, Goal) else _repeated(wanted, occurrence)
            session = self._run[:200] or None
            return await self._client.submit(plan, options=options, session=session, idempotency_key=key)

        made = await found(submit, self._client, place)
        if made.earlier is None:
            return {"job_id": made.job_id, "status": made.status}
        job = made.earlier
        note = _DONE if job.status == "completed" else _UNKNOWN if is_unknown(job) else _IN_PART
        return {"job_id": job.job_id, "status": job.status, "note": _NO_MORE if took_nothing(job) else note}


def by_meaning(plan: Mapping[str, Any], registry: Registry) -> Any:
    """A plan without the names that its author gave its steps, and without what tools don't look at."""
    try:
        graph = TaskGraph.model_validate({"nodes": plan.get("nodes")})
    except ValidationError:
        return dict(plan)  # which the gateway refuses
    places = {node.id: str(place) for place, node in enumerate(graph.nodes)}
    return [_step(node, places, registry) for node in graph.nodes]


def only_reads(wanted: Mapping[str, Any] | Goal, registry: Registry) -> bool:
    """Whether nothing of a plan can take an effect."""
    if isinstance(wanted, Goal):
        return False
    return all(registry.get(tool, {}).get("effect_class") == "pure" for tool in _tools(wanted.get("nodes")))


def _tools(part: Any) -> Iterator[str]:
    """Whatever a plan calls, wherever it stands."""
    if isinstance(part, Mapping):
        held = cast("Mapping[str, Any]", part)
        if "tool" in held:
            yield str(held["tool"])
        for inner in held.values():
            yield from _tools(inner)
    elif isinstance(part, list):
        for inner in cast("list[Any]", part):
            yield from _tools(inner)


def _step(node: Node, places: Mapping[str, str], registry: Registry) -> dict[str, Any]:
    body = node.model_dump(mode="json", exclude_defaults=True, exclude=_NO_MEANING)
    undo = node.compensate_with
    if undo is not None:
        body["compensate_with"] |= {"args": _meant(undo.tool, undo.args, registry)}
    needed = sorted(places.get(name, name) for name in node.depends_on)
    return _renamed(body | {"args": _meant(node.tool, node.args, registry)}, places) | {
        "id": places[node.id],
        "depends_on": needed,
    }


def _meant(tool: str | None, args: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    entry = registry.get(tool or "", {})
    return meant(args, entry.get("schema", {}), entry.get("volatile", ()))


def _renamed(value: Any, places: Mapping[str, str]) -> Any:
    """Whatever it is, with references to the steps' places."""
    if isinstance(value, list):
        return [_renamed(inner, places) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("dict[str, Any]", value)
    target = held.get(REF)
    if len(held) == 1 and isinstance(target, str):
        name, mark, pointer = target.partition("#")
        return {REF: places.get(name, name) + mark + pointer}
    return {name: _renamed(inner, places) for name, inner in held.items()}


def _repeated(plan: Mapping[str, Any], occurrence: int) -> Mapping[str, Any]:
    """A plan that is meant once more: of what can't be undone, too."""
    if occurrence == 1:
        return plan
    nodes = cast("list[dict[str, Any]]", plan["nodes"])
    return {**plan, "nodes": [{**node, "occurrence": node.get("occurrence") or occurrence} for node in nodes]}
