"""What a client sends: bodies parsed strictly, plans pinned to the registry, refusals by field."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.gateway.core import continuing
from aetheris.gateway.core.problems import BadRequest, Conflict, Forbidden
from aetheris.protocol.base import recordable
from aetheris.protocol.base.canonical import InvalidArgs, canonical, digest, parse
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry, Submit
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, CorrelationKey, InvalidPlan, JobOptions, Kind, TaskGraph
from aetheris.protocol.plan.prompts import Brief, Limits, ModelName, Planning, check_prompt, first_graph
from aetheris.protocol.planning import continuation
from aetheris.protocol.planning.continuation import Ended, Verdict
from aetheris.protocol.planning.schemas import graph_json, pin_of, pinned

MAX_BODY_BYTES = 512 * 1024
MAX_PAYLOAD_BYTES = 64 * 1024
"""Of a signal: it lies in the log twice, and in the arguments of whoever refers to it."""

Loc = Iterable[int | str]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Options(JobOptions):
    """The options of a submission; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsBody(Limits):
    """The limits of a goal; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Submission(_Body):
    """The body of POST /jobs; what follows the goal goes with one, and with nothing else."""

    plan: dict[str, Any] | None = None
    goal: str | None = Field(default=None, min_length=1, max_length=10_000)
    model: ModelName | None = None
    tools: tuple[str, ...] | None = Field(default=None, max_length=500)
    system: str | None = Field(default=None, max_length=20_000)
    planning: Planning | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    limits: LimitsBody | None = None
    agent: str | None = Field(default=None, max_length=200)
    session: str | None = Field(default=None, max_length=200)
    options: Options = Options()


class SettleBody(_Body):
    """What who continues a job says became of a step that nobody was sure of."""

    verdict: Literal["happened", "not_executed"]
    evidence: str = Field(min_length=1, max_length=10_000)
    result: Any = None


class GoOnBody(_Body):
    """The body of POST /jobs/{id}/continue; it may be left out: the plan is the earlier job's."""

    plan: dict[str, Any] | None = None
    options: Options = Options()
    settle: dict[str, SettleBody] = Field(default_factory=dict, max_length=100)


class CancelBody(_Body):
    """The body of POST /jobs/{id}/cancel; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)
    compensate: bool = False


class PauseBody(_Body):
    """The body of POST /jobs/{id}/pause and /resume; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)


class CallOffBody(_Body):
    """The body of POST /jobs/{id}/contracts/{execution_id}/cancel; it may be left out."""

    reason: str | None = Field(default=None, max_length=2_000)


class EndBody(_Body):
    """The body of POST /workers/{worker_id}/end; without an incarnation the one who lives is meant."""

    evidence: str = Field(min_length=1, max_length=1_000)
    incarnation: str | None = Field(default=None, min_length=1, max_length=64)


class SignalBody(_Body):
    """The body of POST /jobs/{id}/signal."""

    correlation_key: CorrelationKey
    payload: Any = None


class ResolveBody(_Body):
    """The body of POST /jobs/{id}/contracts/{execution_id}/resolve."""

    verdict: str = Field(pattern="^(happened|not_executed|retry)$")
    evidence: str = Field(min_length=1, max_length=10_000)
    result: Any = None


class RespondBody(_Body):
    """The body of POST /ecs/respond."""

    request_id: str = Field(min_length=1, max_length=200)
    action: Literal["approve", "edit", "reject"]
    data: dict[str, Any] = Field(default_factory=dict)
    comment: str | None = Field(default=None, max_length=2_000)


class ContinueBody(_Body):
    """The body of POST /ecs/continue."""

    request_id: str = Field(min_length=1, max_length=200)


def body_of(raw: bytes) -> dict[str, Any]:
    """A request's JSON object, parsed strictly; no body is an empty object.

    Raises:
        BadRequest: naming the field.
    """
    return _read(raw)[0]


def _read(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The body and its canonical form."""
    try:
        value: Any = parse(raw) if raw else {}
        canonised = canonical(value)
    except InvalidArgs as error:
        raise BadRequest(error.code, _dotted(error.field), error.rule) from None
    if recordable.is_deep(value):
        raise BadRequest(InvalidArgs.code, "body", f"nested deeper than {recordable.MAX_DEPTH} levels")
    if not isinstance(value, dict):
        raise BadRequest("bad_request", "body", "must be a JSON object")
    return cast("dict[str, Any]", value), canonised


def read_cancel(raw: bytes) -> CancelBody:
    """Raises: BadRequest."""
    try:
        return CancelBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_pause(raw: bytes) -> PauseBody:
    """Raises: BadRequest."""
    try:
        return PauseBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_call_off(raw: bytes) -> CallOffBody:
    """Raises: BadRequest."""
    try:
        return CallOffBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_signal(raw: bytes) -> SignalBody:
    """Raises: BadRequest."""
    body = body_of(raw)
    try:
        wanted = SignalBody.model_validate(body)
    except ValidationError as error:
        raise _invalid(error) from None
    if len(canonical(wanted.payload)) > MAX_PAYLOAD_BYTES:
        raise BadRequest("bad_request", "payload", f"larger than {MAX_PAYLOAD_BYTES // 1024} KiB")
    return wanted


def read_respond(raw: bytes) -> RespondBody:
    """Raises: BadRequest."""
    try:
        return RespondBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_continue(raw: bytes) -> ContinueBody:
    """Raises: BadRequest."""
    try:
        return ContinueBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_end(raw: bytes) -> EndBody:
    """Raises: BadRequest."""
    try:
        return EndBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def read_resolve(raw: bytes) -> ResolveBody:
    """Raises: BadRequest."""
    try:
        return ResolveBody.model_validate(body_of(raw))
    except ValidationError as error:
        raise _invalid(error) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose submission it is, and the job that it names."""

    job_id: str
    by: str
    tenant: str
    idempotency_key: str | None


OF_A_GOAL = ("model", "tools", "system", "planning", "max_tokens", "limits")


def submit_command(
    raw: bytes, asked: Asked, registry: Mapping[str, RegistryEntry], models: Mapping[str, ModelEntry]
) -> Submit:
    """The command that a submission asks for, its plan pinned to the registry.

    Args:
        registry: tool name → its newest entry.
        models: model name → its entry.

    Raises:
        BadRequest: naming the field; nothing may be appended for it.
    """
    if len(raw) > MAX_BODY_BYTES:
        raise plan_too_large(MAX_BODY_BYTES)
    body, canonised = _read(raw)
    try:
        wanted = Submission.model_validate(body)
    except ValidationError as error:
        raise _invalid(error) from None
    if (wanted.plan is None) is (wanted.goal is None):
        raise BadRequest("bad_request", "plan", "give either a plan or a goal")
    brief = None if wanted.goal is None else _brief(wanted, registry, models)
    if wanted.goal is not None and brief is not None:
        pins = {name: pin_of(registry[name]) for name in brief.tools}
        plan = _within(graph_json(first_graph(wanted.goal, brief, pins)))
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
        idempotency_key=asked.idempotency_key,
        options=JobOptions.model_validate(wanted.options.model_dump()),
    )


def continue_command(
    raw: bytes,
    asked: Asked,
    ended: Ended,
    registry: Mapping[str, RegistryEntry],
    models: Mapping[str, ModelEntry],
) -> Submit:
    """The command that continues a job: what is left of its plan, or of another, pinned to the registry.

    Raises:
        BadRequest, Conflict: naming the field, or the step; nothing may be appended for it.
    """
    job, (body, _) = ended.job, _read(raw)
    try:
        wanted = GoOnBody.model_validate(body)
        settle = {name: Verdict(one.verdict, one.evidence, one.result) for name, one in wanted.settle.items()}
        known = continuation.continues(ended, asked.by, settle)
        left, uses = continuing.left(job, known, wanted.plan or continuing.planned(job), registry)
        plan = _pinned_plan(left, registry, models)
        continuation.check_not_done(known, asked.tenant, plan)
    except ValidationError as error:
        raise _invalid(error) from None
    except continuation.NotEntitled as error:
        raise Forbidden("not_an_approver", error.message) from None
    except continuation.NotContinuable as error:
        raise Conflict(error.code, error.message, **error.details) from None
    return Submit(
        job_id=asked.job_id,
        by=asked.by,
        tenant=asked.tenant,
        request_hash=digest([job.job_id, body]),
        plan=plan,
        agent=job.created.agent,
        session=job.created.session,
        idempotency_key=asked.idempotency_key,
        options=JobOptions.model_validate(wanted.options.model_dump()),
        continues=known.model_copy(update={"uses": uses}),
    )


def plan_too_large(limit: int = MAX_PLAN_BYTES) -> BadRequest:
    """The refusal of a plan, or of a body that no plan needs; `limit` in bytes."""
    return BadRequest("invalid_plan", "plan", f"larger than {limit // 1024} KiB")


def _only_with_a_goal(wanted: Submission) -> None:
    for name in OF_A_GOAL:
        if getattr(wanted, name) is not None:
            raise BadRequest("bad_request", name, "only with a goal")


def _brief(wanted: Submission, registry: Mapping[str, RegistryEntry], models: Mapping[str, ModelEntry]) -> Brief:
    """Who plans, and with what: every name is one that is registered now."""
    return Brief(
        model=_model(wanted.model, models),
        tools=_offered(wanted.tools, registry),
        system=wanted.system,
        planning=wanted.planning or "agent",
        max_tokens=wanted.max_tokens,
        limits=Limits.model_validate((wanted.limits or LimitsBody()).model_dump()),
    )


def _model(name: str | None, models: Mapping[str, ModelEntry]) -> str:
    if not models:
        raise BadRequest("goal_not_supported", "goal", "no model is configured (AETHERIS_MODELS)")
    if name is None and len(models) > 1:
        raise BadRequest("bad_request", "model", f"missing: one of {', '.join(models)}")
    if name is not None and name not in models:
        raise BadRequest("bad_request", "model", "is not registered")
    return name if name is not None else next(iter(models))


def _offered(wanted: tuple[str, ...] | None, registry: Mapping[str, RegistryEntry]) -> tuple[str, ...]:
    """The tools of a list of names and patterns, each once."""
    if wanted is None:
        raise BadRequest(
            "bad_request", "tools", 'missing: the tools that the model may call, ["*"] for all, [] for none'
        )
    found: dict[str, None] = {}
    for place, pattern in enumerate(wanted):
        matching = [name for name in registry if fnmatchcase(name, pattern)]
        if not matching:
            raise BadRequest("bad_request", f"tools[{place}]", "matches no registered tool")
        found |= dict.fromkeys(matching)
    return tuple(found)


def _within(plan: dict[str, Any]) -> dict[str, Any]:
    if len(canonical(plan)) > MAX_PLAN_BYTES:
        raise plan_too_large()
    return plan


def _pinned_plan(
    plan: Mapping[str, Any], registry: Mapping[str, RegistryEntry], models: Mapping[str, ModelEntry]
) -> dict[str, Any]:
    try:
        # Pins come from the registry alone: what a client says of a tool is dropped.
        graph = TaskGraph.model_validate({name: value for name, value in plan.items() if name != "tools"})
        _check_kinds(graph, models)
        found = graph_json(pinned(graph, registry))
    except ValidationError as error:
        raise _invalid(error, "plan", "invalid_plan") from None
    except InvalidPlan as error:
        raise BadRequest(error.code, f"plan.{error.field}", error.rule) from None
    return _within(found)


def _check_kinds(graph: TaskGraph, models: Mapping[str, ModelEntry]) -> None:
    for index, node in enumerate(graph.nodes):
        if node.compensates is not None:
            raise InvalidPlan(f"nodes[{index}].compensates", "only the planner undoes a node: see compensate_with")
        if node.kind is Kind.LLM:
            check_prompt(node, f"nodes[{index}]")
            if node.args["model"] not in models:
                raise InvalidPlan(f"nodes[{index}].args/model", "is not registered")


def _invalid(error: ValidationError, within: str = "", code: str = "bad_request") -> BadRequest:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return BadRequest(code, field_path(first["loc"], within) or "body", first["msg"])


def field_path(loc: Loc, within: str = "") -> str:
    """("nodes", 0, "args") as `nodes[0].args`."""
    path = within
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _dotted(pointer: str) -> str:
    """A JSON Pointer as a field path."""
    parts = pointer.split("/")[1:]
    return field_path(int(part) if part.isdecimal() else part for part in parts) or "body"
