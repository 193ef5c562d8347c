"""A job that continues a failed or cancelled one: what it adopts, what is left to run, and what is refused by name.

What is adopted is not in the new job's plan at all: nothing can run it again. Its results stand in the arguments of
what uses them, or are referred to (docs/continue.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem
from aetheris.protocol.base.canonical import canonical, digest
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.references import REF, UnresolvedReference, pointer_part, references, resolve
from aetheris.protocol.fold.state import JobState
from aetheris.protocol.messages.adoption import Adopted, Continues, Given, Use
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, Node, TaskGraph
from aetheris.protocol.plan.prompts import turn_id
from aetheris.protocol.planning.continuation import result_of
from aetheris.protocol.planning.earlier_calls import going_on
from aetheris.protocol.planning.goals import GOAL_ENTRY, steps_of
from aetheris.protocol.planning.schemas import graph_json, pin_of, with_defaults

Registry = Mapping[str, RegistryEntry]


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to run: its plan, where results stand in that, and those that it refers to."""

    plan: dict[str, Any]
    uses: tuple[Use, ...]
    given: tuple[Given, ...]


def planned(job: JobState) -> dict[str, Any]:
    """The plan of a job, as it would be submitted, without what undid it; of a goal, what its model planned.

    Raises:
        Conflict: the model never gave a plan, or one that is too large to be read here.
    """
    nodes: Iterable[Node] = (entries[-1].node for entries in job.entries.values())
    nodes = [node for node in nodes if node.compensates is None]
    if job.created.goal is not None:
        nodes = list(_planned_by_model(job))
        if not nodes:
            raise ConflictProblem(
                "not_continuable", "its model gave no plan: submit its goal again, or give a plan (--plan)"
            )
    return {"nodes": [node.model_dump(mode="json", exclude_defaults=True) for node in nodes]}


def _planned_by_model(job: JobState) -> Iterator[Node]:
    """The steps of the whole plan that a model gave; of one that an approver has edited, his arguments."""
    settled = job.settled_key(turn_id(1))
    for step in steps_of(settled[1].result) if settled is not None else ():
        entry = job.entry(step.id)
        yield step if entry is None else step.model_copy(update={"args": entry.node.args})


def asked_on(
    job: JobState, known: Continues, registry: Registry, models: Mapping[str, ModelEntry]
) -> tuple[dict[str, Any], tuple[Given, ...]]:
    """The plan that goes on towards the goal of a job whose model went turn by turn, and the results it refers to.

    Raises:
        Conflict: the model, or a tool that it was offered, is registered no more, or too much was done to be told.
    """
    brief = job.created.brief
    if brief is None:
        raise LookupError("a goal has its brief")
    gone = [name for name in brief.tools if name not in registry] + ([] if brief.model in models else [brief.model])
    if gone:
        message = f"{', '.join(gone)}: registered no more; give a plan for what is left (--plan)"
        raise ConflictProblem("not_continuable", message)
    pins = {name: pin_of(registry[name]) for name in brief.tools}
    graph = going_on(job, known, brief, pins, pin_of(GOAL_ENTRY))
    (node,) = graph.nodes
    used = [known.by_name[name] for name in dict.fromkeys(one.node_id for one in node.adopted)]
    small = [one.name for one in used if one.result_ref is None]
    given = tuple(Given(name=name, result=result_of(job, known, name)) for name in small)
    plan = graph_json(graph)
    if len(canonical([plan, [one.result for one in given]])) > MAX_PLAN_BYTES:
        message = "more was done than a question has room for: give a plan for what is left (--plan)"
        raise ConflictProblem("not_continuable", message)
    return plan, given


def left(job: JobState, known: Continues, plan: Mapping[str, Any], registry: Registry) -> Left:
    """What of a plan is still to run.

    Raises:
        BadRequest: a reference leads nowhere in an adopted result, or to one that the earlier job does not have.
        Conflict: a settled step is changed, or nothing is left.
    """
    graph = TaskGraph.model_validate({"nodes": plan.get("nodes")})
    done = {one.node_id: one for one in known.adopted}
    changed = [node.id for node in graph.nodes if node.id in done and not _same(job, done[node.id], node, registry)]
    if changed:
        message = f"{', '.join(changed)}: settled in the earlier job, and may not be changed"
        raise ConflictProblem("step_changed", message, nodes=changed)
    kept = [node for node in graph.nodes if node.id not in done]
    if not kept:
        raise ConflictProblem("nothing_left", "every step of the plan is settled in the earlier job")
    filling = _Filling(job, known, done)
    nodes = [filling.node(node) for node in kept]
    return Left({"nodes": nodes}, tuple(filling.uses), tuple(filling.given()))


def _same(job: JobState, done: Adopted, node: Node, registry: Registry) -> bool:
    """Whether a plan says of a settled step what was done."""
    listed = registry.get(node.tool_name)
    args = with_defaults(listed.schema_ if listed is not None else {}, node.args)
    entry = job.entry(node.id) if done.job_id == job.job_id else None
    if entry is None:  # done by a job before that one: what it was is known by its hash
        return node.tool_name == done.tool_name and not node.references and args_hash(args) == done.args_hash
    if entry.node.tool != node.tool or entry.node.kind is not node.kind:
        return False
    schema = listed.schema_ if listed is not None else {}
    return digest(args) == digest(with_defaults(schema, entry.node.args))


@dataclass
class _Filling:
    """Puts adopted results in the place of references; what can't stand in a plan is referred to where it lies.

    That is what is large; an object, which a schema's defaults would change; what holds references, which would be
    taken for the plan's; and what a still earlier job did.
    """

    job: JobState
    known: Continues
    done: Mapping[str, Adopted]
    uses: list[Use] = field(default_factory=list[Use])
    named: dict[str, str] = field(default_factory=dict[str, str])
    """The adopted results that are referred to, and by which step first."""

    def node(self, node: Node) -> dict[str, Any]:
        body = node.model_dump(mode="json", exclude_defaults=True)
        body["depends_on"] = [name for name in node.depends_on if name not in self.done]
        body["args"] = self._filled(node, node.args, "/args")
        undo = node.compensate_with
        if undo is not None:
            body["compensate_with"] |= {"args": self._filled(node, undo.args, "/compensate_with/args")}
        return body

    def given(self) -> Iterator[Given]:
        """The results that are referred to, but for what lies in the store of blobs."""
        for name, by in self.named.items():
            one = self.known.by_name.get(name)
            if one is None or one.result_ref is not None:
                continue
            try:
                yield Given(name=name, result=result_of(self.job, self.known, name))
            except LookupError:
                rule = f"the result of {one.node_id} is in job {one.job_id} alone, and another is continued"
                raise BadRequestProblem("invalid_plan", f"plan.{by}.args", rule) from None

    def _filled(self, node: Node, part: Any, at: str) -> Any:
        if isinstance(part, list):
            inside = enumerate(cast("list[Any]", part))
            return [self._filled(node, inner, f"{at}/{place}") for place, inner in inside]
        if not isinstance(part, dict):
            return part
        held = cast("dict[str, Any]", part)
        target = held.get(REF)
        if len(held) == 1 and isinstance(target, str):
            return self._result(node, held, target, at)
        return {name: self._filled(node, inner, at + pointer_part(name)) for name, inner in held.items()}

    def _result(self, node: Node, held: dict[str, Any], target: str, at: str) -> Any:
        name, _, pointer = target.partition("#")
        one = self.known.by_name.get(name) or self.done.get(name)
        if one is None:
            return held
        if one.job_id == self.job.job_id and one.result_ref is None:
            try:
                found = resolve({REF: f"{name}#{pointer}"}, {name: result_of(self.job, self.known, one.name)})
            except UnresolvedReference as error:
                raise BadRequestProblem("invalid_plan", f"plan.{node.id}.args", str(error)) from None
            if not isinstance(found, dict) and not any(references(found)):
                self.uses.append(Use(node_id=node.id, at=at, ref=f"{one.node_id}#{pointer}"))
                return found
        self.named.setdefault(one.name, node.id)
        return {REF: f"{one.name}#{pointer}"}
