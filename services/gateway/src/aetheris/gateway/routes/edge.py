"""What the routes share: who calls, the body, numbers in queries, answers."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, cast

from fastapi import Depends, Request
from fastapi.responses import JSONResponse

from aetheris.gateway.access_history import AccessHistory
from aetheris.gateway.access_log import AccessLog
from aetheris.gateway.activated_policies import ActivatedPolicies
from aetheris.gateway.call_leases import CallLeases
from aetheris.gateway.client_sessions import ClientSessions
from aetheris.gateway.commands import JobCommands, Reply
from aetheris.gateway.core import bodies
from aetheris.gateway.core.access import ROUTES, admitted
from aetheris.gateway.core.holds import Holds
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.dead_letters import DeadLetters
from aetheris.gateway.end_waits import EndWait
from aetheris.gateway.human_requests import HumanRequests
from aetheris.gateway.intake import Intake
from aetheris.gateway.job_histories import JobHistories
from aetheris.gateway.job_reader import JobReader
from aetheris.gateway.job_search_index import JobSearchIndex
from aetheris.gateway.limiter import Limiter
from aetheris.gateway.logins import Logins
from aetheris.gateway.opened_values import JobOpenings
from aetheris.gateway.ordered_freezes import OrderedFreezes
from aetheris.gateway.ordered_rules import OrderedRules
from aetheris.gateway.policy_trials import PolicyTrials
from aetheris.gateway.reads import Reads
from aetheris.gateway.reconciliation import Reconciliation
from aetheris.gateway.routes.audited import begin
from aetheris.gateway.spent_budgets import SpentBudgets
from aetheris.gateway.stalled_jobs import StalledJobList
from aetheris.gateway.subjects import Subjects
from aetheris.gateway.system_health import SystemHealth
from aetheris.gateway.told_schedules import ToldSchedules
from aetheris.gateway.tool_releases import ToolReleases
from aetheris.gateway.undos import Undos
from aetheris.gateway.verifier_proxy import VerifierProxy
from aetheris.gateway.workers import WorkerDirectory
from aetheris.protocol.api_models import RequestModel, ResponseModel
from aetheris.runtime.process.health import Health

_MAX_DRAINED_BYTES = 16 * 1024 * 1024
"""Of a body that is too large, so much is read: a client that still writes would not see the answer."""

PREFER = "`wait=N`: answer when the job has ended, after N seconds (60 at most) at the latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What answers requests."""

    logins: Logins
    limits: Limiter
    accesses: AccessLog
    access_history: AccessHistory
    reader: JobReader
    intake: Intake
    reads: Reads
    commands: JobCommands
    sessions: ClientSessions
    reconciliation: Reconciliation
    human_requests: HumanRequests
    histories: JobHistories
    search: JobSearchIndex
    verifier: VerifierProxy
    workers: WorkerDirectory
    tool_releases: ToolReleases
    freezes: OrderedFreezes
    policies: ActivatedPolicies
    policy_trials: PolicyTrials
    system_health: SystemHealth
    dead_letters: DeadLetters
    stalled: StalledJobList
    schedules: ToldSchedules
    budgets: SpentBudgets
    leases: CallLeases
    rules: OrderedRules
    undos: Undos
    subjects: Subjects
    openings: JobOpenings
    health: Health
    holds: Holds
    keepalive_s: float


def services_of(request: Request) -> Services:
    """What answers this request."""
    return cast("Services", request.app.state.services)


async def _services(request: Request) -> Services:
    return services_of(request)


async def caller_of(request: Request) -> Principal:
    """As `admitted_to`, where FastAPI knows the route."""
    return await admitted_to(f"{request.method} {request.scope['route'].path}", request)


async def admitted_to(route: str, request: Request) -> Principal:
    """Who calls, as far as the route lets him.

    Raises:
        Unauthorized, Unavailable: who calls is not known, or can't be told.
        TooMany: after many of those, or beyond a limit.
        Forbidden.
    """
    services, access = services_of(request), begin(request, route)
    known = await services.logins.principal(request.headers.get("authorization"), access.address)
    access.caller = known
    services.limits.admit(known)
    return admitted(known, ROUTES[route])


async def body_of(request: Request) -> bytes:
    """The request's bytes.

    Raises:
        BadRequest: more than a plan may have.
    """
    taken, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= bodies.MAX_BODY_BYTES:
            taken += chunk
        elif size > _MAX_DRAINED_BYTES:
            break
    if size > bodies.MAX_BODY_BYTES:
        raise bodies.plan_too_large(bodies.MAX_BODY_BYTES)
    return bytes(taken)


ADMISSION = Depends(caller_of)
"""Of every route but the open ones, and before all else: nothing is read of those who may not call."""
Who = Annotated[Principal, ADMISSION]
RouteServices = Annotated[Services, Depends(_services)]
Raw = Annotated[bytes, Depends(body_of)]


def json_reply(answer: ResponseModel, status: int = 200) -> JSONResponse:
    """An answer, as far as its fields are set."""
    return JSONResponse(answer.model_dump(mode="json", exclude_unset=True), status)


def replied(reply: Reply[Any]) -> JSONResponse:
    """200 where the log has answered, 202 where it has not yet."""
    return json_reply(reply.answer, 200 if reply.answered else 202)


def takes(kind: type[RequestModel], *, required: bool = True) -> dict[str, Any]:
    """What a route says of its body, which it parses by itself, for the API's description."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def also_takes(place: str, **parameters: str) -> dict[str, Any]:
    """Parameters (of the query or the header) that a route reads by itself, for the API's description."""
    reported = [{"name": name.replace("_", "-"), "in": place, "description": says} for name, says in parameters.items()]
    return {"parameters": [one | {"required": False, "schema": {"type": "string"}} for one in reported]}


def command(
    answer: type[ResponseModel], body: type[RequestModel] | None = None, *, required: bool = True
) -> dict[str, Any]:
    """What a route says of a command: its answer now or later, and its body."""
    later = {202: {"model": answer, "description": "The log has not answered yet"}}
    fields = {} if body is None else {"openapi_extra": takes(body, required=required)}
    return {"response_model": answer, "responses": later, **fields}


def number(field: str, text: str, least: int, most: int = 2**53) -> int:
    """A whole number of a query; raises BadRequest."""
    if not re.fullmatch(r"[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise BadRequestProblem("bad_request", field, f"must be a whole number from {least} to {most}")
    return int(text)


def time_of(field: str, text: str | None) -> datetime | None:
    """A time of a query; raises BadRequest."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else _no_time(field)
    except (ValueError, OverflowError):
        return _no_time(field)


def _no_time(field: str) -> NoReturn:
    raise BadRequestProblem("bad_request", field, "must be a time with its offset, as RFC 3339 has it")


@asynccontextmanager
async def waiting(request: Request, caller: Principal, within_s: int) -> AsyncGenerator[EndWait]:
    """A wait that is over at the latest when the request's client has gone; its body must have been read.

    Raises:
        TooMany.
    """
    with services_of(request).holds.held(caller):
        leaving = asyncio.create_task(_left(request))
        try:
            yield EndWait(within_s, leaving)
        finally:
            leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def applied(wait: EndWait) -> dict[str, str]:
    """The header that says so."""
    return {"Preference-Applied": f"wait={wait.within_s}"}
