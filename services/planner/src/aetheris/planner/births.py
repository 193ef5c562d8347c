"""How a job is born: a submission, checked again, becomes one group of job_created and plan_generated."""

from typing import Any

from pydantic import ValidationError

from aetheris.planner.decisions import Append, Fact
from aetheris.protocol.canonical import InvalidArgs, canonical, digest
from aetheris.protocol.commands import Submit
from aetheris.protocol.events import JobCreated, PlanGenerated
from aetheris.protocol.ids import InvalidName, check_name
from aetheris.protocol.plan import MAX_PLAN_BYTES, SUPPORTED, InvalidPlan, JobOptions, TaskGraph, check_graph, tools_of

PLANNER = "static"
PLANNER_VERSION = "1"


def birth_group(command: Submit, command_id: str) -> Append:
    """The first two records of a job, which are written together or not at all.

    Raises:
        InvalidPlan: naming the field; the gateway lets no such submission through.
    """
    plan = checked_plan(command)
    plan_hash = digest(plan)
    created = JobCreated(
        job_id=command.job_id,
        caused_by=command_id,
        tenant=command.tenant,
        submitted_by=command.by,
        request_hash=command.request_hash,
        plan=plan,
        agent=command.agent,
        session=command.session,
        idempotency_key=command.idempotency_key,
        parent_job_id=command.parent_job_id,
        options=command.options if command.options != JobOptions() else None,
    )
    planned = PlanGenerated(
        job_id=command.job_id,
        caused_by=command_id,
        revision=0,
        plan_hash=plan_hash,
        task_graph=plan,
        planner=PLANNER,
        planner_version=PLANNER_VERSION,
    )
    return Append((Fact(created, (command_id,)), Fact(planned, ("0", plan_hash))))


def checked_plan(command: Submit) -> dict[str, Any]:
    """The submission's plan, exactly as given.

    Raises:
        InvalidPlan: no plan, a bad graph, a tool without its pin, a kind that can't run, or too large.
    """
    plan = command.plan
    if plan is None:
        raise InvalidPlan("plan", "missing; this version takes no goals")
    try:
        check_name(command.job_id, "job_id")
        size = len(canonical(plan))
        graph = TaskGraph.model_validate(plan)
    except InvalidName:
        raise InvalidPlan("job_id", "must match [A-Za-z0-9_.-]{1,64}") from None
    except InvalidArgs as error:
        raise InvalidPlan(f"plan{error.field}", error.rule) from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InvalidPlan(".".join(("plan", *map(str, first["loc"]))), first["msg"]) from None
    if size > MAX_PLAN_BYTES:
        raise InvalidPlan("plan", f"larger than {MAX_PLAN_BYTES // 1024} KiB")
    _check_runnable(graph)
    return plan


def _check_runnable(graph: TaskGraph) -> None:
    check_graph(graph.nodes)
    for index, node in enumerate(graph.nodes):
        if node.kind not in SUPPORTED:
            raise InvalidPlan(f"nodes[{index}].kind", f"{node.kind.value} is not supported by this version")
        if node.compensates is not None:
            raise InvalidPlan(f"nodes[{index}].compensates", "only the planner undoes a node: see compensate_with")
        for tool in tools_of(node):
            if tool not in graph.tools:
                raise InvalidPlan(f"nodes[{index}].tool", f"{tool} is not pinned")
