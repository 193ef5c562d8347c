"""Submissions: plans pinned to the registry, goals with who plans for them, refusals by field."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from aetheris.gateway.core import bodies, continuations
from aetheris.gateway.core.access import missing
from aetheris.gateway.core.personal_arguments import (
    check_continuable,
    check_offered,
    check_unmarked,
    check_workflows,
)
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem
from aetheris.protocol import api
from aetheris.protocol.base.canonical import canonical, digest, is_longer
from aetheris.protocol.base.principals import RecordedPrincipal, Role, speaker
from aetheris.protocol.base.references import UnresolvedReference
from aetheris.protocol.messages.adoption import Continues
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, InvalidPlan, JobOptions, Kind, TaskGraph
from aetheris.protocol.plan.prompts import Brief, Limits, check_prompt
from aetheris.protocol.planning import continuation
from aetheris.protocol.planning.continuation import EndedJob, StepVerdict
from aetheris.protocol.planning.goals import GOAL_ENTRY, goal_graph
from aetheris.protocol.planning.schemas import graph_json, pin_of, pinned


@dataclass(frozen=True, slots=True)
class SubmissionRequest:
    """Whose submission it is, and the job that it names."""

    job_id: str
    by: str
    tenant: str
    idempotency_key: str | None
    may_settle: bool = False
    """Whether he may say what became of steps in doubt, as far as his roles say."""
    principal: RecordedPrincipal | None = None
    """What he is, where that is known."""


OF_A_GOAL = ("model", "tools", "system", "planning", "max_tokens", "temperature", "seed", "limits")


def submit_command(
    raw: bytes, asked: SubmissionRequest, registry: Mapping[str, RegistryEntry], models: Mapping[str, ModelEntry]
) -> Submit:
    """The command that a submission asks for, its plan pinned to the registry.

    Args:
        registry: tool name → its newest entry.
        models: model name → its entry.

    Raises:
        BadRequest: naming the field; nothing may be appended for it.
    """
    if len(raw) > bodies.MAX_BODY_BYTES:
        raise bodies.plan_too_large(bodies.MAX_BODY_BYTES)
    body, canonised = bodies.parsed(raw)
    wanted = bodies.validated(api.Submission, body)
    if (wanted.plan is None) is (wanted.goal is None):
        raise BadRequestProblem("bad_request", "plan", "give either a plan or a goal")
    brief = None if wanted.goal is None else _brief(wanted, registry, models)
    if wanted.goal is not None and brief is not None:
        pins = {name: pin_of(registry[name]) for name in brief.tools}
        plan = _within(graph_json(goal_graph(wanted.goal, brief, pins, pin_of(GOAL_ENTRY))))
    else:
        _only_with_a_goal(wanted)
        plan = _pinned_plan(wanted.plan or {}, registry, models)
    return Submit(
        job_id=asked.job_id,
        by=asked.by,
        tenant=asked.tenant,
        request_hash=hashlib.sha256(canonised).hexdigest(),
        plan=plan,
        goal=wanted.goal,
        brief=brief,
        agent=wanted.agent,
        session=wanted.session,
        labels=dict(wanted.labels) or None,
        idempotency_key=asked.idempotency_key,
        options=JobOptions.model_validate(wanted.options.model_dump()) if "options" in body else JobOptions(),
    )


def repeated(command: Submit) -> Submit:
    """A submission that was taken before, without what it asks for: its number is all that is new."""
    return Submit(
        job_id=command.job_id,
        by=command.by,
        tenant=command.tenant,
        request_hash=command.request_hash,
        idempotency_key=command.idempotency_key,
        repeats=True,
    )


def continue_command(
    raw: bytes,
    asked: SubmissionRequest,
    ended: EndedJob,
    registry: Mapping[str, RegistryEntry],
    models: Mapping[str, ModelEntry],
) -> Submit:
    """The command that continues a job: what is left of its plan, or of another, pinned to the registry.

    Raises:
        BadRequest, Forbidden, Conflict: naming the field, or the step; nothing may be appended for it.
    """
    job, (body, _) = ended.job, bodies.parsed(raw)
    check_continuable(job)
    wanted = bodies.validated(api.ContinuationBody, body)
    asks_on = wanted.plan is None and continuation.asks_on(job)
    if wanted.settle and not asked.may_settle:
        raise missing(Role.RESOLVE, about="settling a step")
    try:
        settle = {name: StepVerdict(one.verdict, one.evidence, one.result) for name, one in wanted.settle.items()}
        known = continuation.continues(ended, speaker(asked.by, asked.tenant, asked.principal), settle)
        if asks_on:
            plan, given = continuations.asked_on(job, known, registry, models)
            known = known.model_copy(update={"given": given})
        else:
            left = continuations.left(job, known, wanted.plan or continuations.planned(job), registry)
            known = known.model_copy(update={"uses": left.uses, "given": left.given})
            plan = _pinned_plan(left.plan, registry, models, known)
            check_unmarked(plan, registry, "a job that continues another")
        continuation.check_not_done(known, asked.tenant, plan)
    except ValidationError as error:
        raise bodies.invalid(error) from None
    except UnresolvedReference as error:
        raise BadRequestProblem("invalid_plan", "plan", str(error)) from None
    except continuation.NotEntitled as error:
        raise ForbiddenProblem("not_an_approver", error.message) from None
    except continuation.NotContinuable as error:
        raise ConflictProblem(error.code, error.message, **error.details) from None
    fields = known.model_dump(mode="json", exclude_none=True)
    if 2 * len(canonical(plan)) + len(canonical(fields)) > continuation.MAX_BIRTH_BYTES:
        message = f"{len(known.adopted)} steps are adopted: with this plan, that is more than a job's creation can hold"
        raise ConflictProblem("too_much_adopted", message)
    return Submit(
        job_id=asked.job_id,
        by=asked.by,
        tenant=asked.tenant,
        request_hash=digest([job.job_id, body]),
        plan=plan,
        goal=job.created.goal if asks_on else None,
        brief=job.created.brief if asks_on else None,
        agent=job.created.agent,
        session=job.created.session,
        labels=job.created.labels,
        idempotency_key=asked.idempotency_key,
        options=JobOptions.model_validate(wanted.options.model_dump()),
        continues=known,
        principal=known.said_by,
    )


def _only_with_a_goal(wanted: api.Submission) -> None:
    for name in OF_A_GOAL:
        if getattr(wanted, name) is not None:
            raise BadRequestProblem("bad_request", name, "only with a goal")


def _brief(wanted: api.Submission, registry: Mapping[str, RegistryEntry], models: Mapping[str, ModelEntry]) -> Brief:
    """Who plans, and with what: every name is one that is registered now."""
    return Brief(
        model=_model(wanted.model, models),
        tools=_of_goal(wanted.tools, registry),
        system=wanted.system,
        planning=wanted.planning or "agent",
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        seed=wanted.seed,
        limits=Limits.model_validate((wanted.limits or api.LimitsBody()).model_dump()),
    )


def _model(name: str | None, models: Mapping[str, ModelEntry]) -> str:
    if not models:
        raise BadRequestProblem("goal_not_supported", "goal", "no model is configured (AETHERIS_MODELS)")
    if name is None and len(models) > 1:
        raise BadRequestProblem("bad_request", "model", f"missing: one of {', '.join(models)}")
    if name is not None and name not in models:
        raise BadRequestProblem("bad_request", "model", "is not registered")
    return name if name is not None else next(iter(models))


def _of_goal(wanted: tuple[str, ...] | None, registry: Mapping[str, RegistryEntry]) -> tuple[str, ...]:
    if wanted is None:
        raise BadRequestProblem(
            "bad_request", "tools", 'missing: the tools that the model may call, ["*"] for all, [] for none'
        )
    return offered_tools(wanted, registry)


def offered_tools(wanted: Iterable[str], registry: Mapping[str, RegistryEntry]) -> tuple[str, ...]:
    """The tools of a list of names and patterns, each once.

    Raises:
        BadRequest: one that fits no tool, or a tool with personal arguments.
    """
    found: dict[str, None] = {}
    known = [name for name, one in registry.items() if one.kind == "tool" and name != GOAL_ENTRY.name]
    for place, pattern in enumerate(wanted):
        matching = [name for name in known if fnmatchcase(name, pattern)]
        if not matching:
            raise BadRequestProblem("bad_request", f"tools[{place}]", "matches no registered tool")
        found |= dict.fromkeys(matching)
    check_offered(tuple(found), registry)
    return tuple(found)


def _within(plan: dict[str, Any]) -> dict[str, Any]:
    if is_longer(plan, MAX_PLAN_BYTES):
        raise bodies.plan_too_large()
    return plan


def _pinned_plan(
    plan: Mapping[str, Any],
    registry: Mapping[str, RegistryEntry],
    models: Mapping[str, ModelEntry],
    continues: Continues | None = None,
) -> dict[str, Any]:
    try:
        # Pins come from the registry alone: what a client says of a tool is dropped.
        graph = TaskGraph.model_validate({name: value for name, value in plan.items() if name != "tools"})
        _check_kinds(graph, models)
        adopted = continues.by_name if continues is not None else frozenset[str]()
        with_pins = pinned(graph, registry, adopted)
        check_workflows(with_pins, registry)
        found = graph_json(with_pins)
    except ValidationError as error:
        raise bodies.invalid(error, "plan", "invalid_plan") from None
    except InvalidPlan as error:
        raise BadRequestProblem(error.code, f"plan.{error.field}", error.rule) from None
    given = [one.result for one in continues.given] if continues is not None else []
    if is_longer([found, given], MAX_PLAN_BYTES):
        raise bodies.plan_too_large()
    return found


def _check_kinds(graph: TaskGraph, models: Mapping[str, ModelEntry]) -> None:
    for index, node in enumerate(graph.nodes):
        if node.compensates is not None:
            raise InvalidPlan(f"nodes[{index}].compensates", "only the planner undoes a node: see compensate_with")
        if node.kind is Kind.LLM:
            check_prompt(node, f"nodes[{index}]")
            if node.args["model"] not in models:
                raise InvalidPlan(f"nodes[{index}].args/model", "is not registered")
