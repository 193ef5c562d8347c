"""How a job is created: a submission, checked again, becomes one group of job_created and plan_generated."""

import hashlib
from collections.abc import Callable, Container
from typing import Any

from pydantic import ValidationError

from aetheris.planner.core.decisions import Append, NewEvent
from aetheris.protocol.base.canonical import InvalidArgs, canonical
from aetheris.protocol.base.ids import InvalidName, check_name
from aetheris.protocol.base.labels import are_labels
from aetheris.protocol.messages.commands import BeginJob, Submit
from aetheris.protocol.messages.event_base import FIRST_RULES
from aetheris.protocol.messages.events import JobCreated, JobFailed, PlanGenerated
from aetheris.protocol.plan.graph import (
    MAX_PLAN_BYTES,
    EffectClass,
    InvalidPlan,
    JobOptions,
    Kind,
    TaskGraph,
    check_graph,
    tools_of,
)
from aetheris.protocol.plan.prompts import Brief, check_prompt
from aetheris.protocol.planning.child_jobs import check_begun
from aetheris.protocol.planning.goals import GOAL_ENTRY, goal_graph

PLANNER = "static"
PLANNER_VERSION = "1"
BY_MODEL = "model"
"""The planner of a goal: a model says which calls its body makes (docs/models.md)."""


def creation_group(
    command: Submit, command_id: str, unfounded: Callable[[], str | None] = lambda: None, rules: int = FIRST_RULES
) -> Append:
    """The first two records of a job, which are written together or not at all.

    `rules`: the version of the rules by which it is judged. `unfounded`: why its plan can't continue the job that it
    names; its end is then the third, and nothing of it runs.

    Raises:
        InvalidPlan: naming the field; the gateway lets no such submission through.
    """
    plan, plan_hash, has_bodies = checked_plan(command)
    if isinstance(command, BeginJob):
        check_begun(command)
    created = JobCreated(
        job_id=command.job_id,
        caused_by=command_id,
        tenant=command.tenant,
        submitted_by=command.by,
        request_hash=command.request_hash,
        plan=plan if command.goal is None else None,
        goal=command.goal,
        brief=command.brief,
        agent=command.agent,
        session=command.session,
        labels=command.labels or None,
        idempotency_key=command.idempotency_key,
        begun=command.begun if isinstance(command, BeginJob) else None,
        continues=command.continues,
        rules=rules,
        options=command.options if command.options != JobOptions() else None,
        receipt=command.receipt,
    )
    planned = PlanGenerated(
        job_id=command.job_id,
        caused_by=command_id,
        revision=0,
        plan_hash=plan_hash,
        task_graph=plan,
        planner=PLANNER if command.goal is None else BY_MODEL,
        planner_version=PLANNER_VERSION,
        bodies=True if has_bodies else None,
    )
    facts = (NewEvent(created, (command_id,)), NewEvent(planned, ("0", plan_hash)))
    why = unfounded()
    if why is None:
        return Append(facts)
    end = JobFailed(job_id=command.job_id, error=f"continues: {why}", unfounded=True)
    return Append((*facts, NewEvent(end, ("unfounded",))))


def checked_plan(command: Submit) -> tuple[dict[str, Any], str, bool]:
    """The submission's plan, exactly as given, its hash, and whether it has bodies.

    That of a goal asks its model, and pins what it may call.

    Raises:
        InvalidPlan: no plan, no labels, a bad graph, a tool without its pin, a kind that can't run, or too large.
    """
    plan = command.plan
    if command.labels is not None and not are_labels(command.labels):
        raise InvalidPlan("labels", "are no labels")
    if plan is None:
        raise InvalidPlan("plan", "missing")
    try:
        check_name(command.job_id, "job_id")
        canonically = canonical(plan)
        graph = TaskGraph.model_validate(plan)
    except InvalidName:
        raise InvalidPlan("job_id", "must match [A-Za-z0-9_.-]{1,64}") from None
    except InvalidArgs as error:
        raise InvalidPlan(f"plan{error.field}", error.rule) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InvalidPlan(".".join(("plan", *map(str, first["loc"]))), first["msg"]) from None
    if len(canonically) > MAX_PLAN_BYTES:
        raise InvalidPlan("plan", f"larger than {MAX_PLAN_BYTES // 1024} KiB")
    if command.goal is None:
        _check_runnable(graph, command.continues.by_name if command.continues is not None else frozenset())
    else:
        _check_first(command.goal, command.brief, graph, goes_on=command.continues is not None)
    return plan, hashlib.sha256(canonically).hexdigest(), graph.has_bodies


def _check_first(goal: str, brief: Brief | None, graph: TaskGraph, *, goes_on: bool) -> None:
    """Nothing but what the brief says; where it goes on from an earlier job, that one has its say first."""
    if brief is None:
        raise InvalidPlan("brief", "missing: it names the model")
    if not {*brief.tools, GOAL_ENTRY.name} <= graph.tools.keys() or GOAL_ENTRY.name in brief.tools:
        raise InvalidPlan("plan.tools", "a tool of the brief is not pinned")
    _check_bodies(graph)
    if not goes_on and graph != goal_graph(goal, brief, graph.tools, graph.tools[GOAL_ENTRY.name]):
        raise InvalidPlan("plan", "is not the one that follows from the goal and its brief")


def _check_runnable(graph: TaskGraph, adopted: Container[str]) -> None:
    check_graph(graph.nodes, adopted)
    for index, node in enumerate(graph.nodes):
        if node.compensates is not None:
            raise InvalidPlan(f"nodes[{index}].compensates", "only the planner undoes a node: see compensate_with")
        if node.kind is Kind.LLM:
            check_prompt(node, f"nodes[{index}]")
        for tool in tools_of(node):
            if tool not in graph.tools:
                raise InvalidPlan(f"nodes[{index}].tool", f"{tool} is not pinned")
    if graph.has_bodies:
        _check_bodies(graph)


def _check_bodies(graph: TaskGraph) -> None:
    """What the fold asks of a plan with bodies: that they do nothing themselves."""
    for index, node in enumerate(graph.nodes):
        if node.kind is not Kind.WORKFLOW or node.tool is None:
            continue
        pin = graph.tools[node.tool]
        if node.irreversible or pin.irreversible or pin.effect_class is not EffectClass.PURE:
            raise InvalidPlan(f"nodes[{index}].tool", f"{node.tool} is no workflow: it has effects of its own")
