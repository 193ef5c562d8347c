"""The HTTP API: its routes together, and what refusals look like on the wire (docs/http-api.md)."""

from collections.abc import Mapping
from typing import cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from aetheris.gateway.core import bodies
from aetheris.gateway.core.problems import BadRequestProblem, Problem, TooMany, UnauthorizedProblem, Unavailable
from aetheris.gateway.routes import (
    audit,
    budgets,
    caller,
    dead_letters,
    freezes,
    health,
    history,
    human_requests,
    job_commands,
    jobs,
    limits,
    policies,
    probes,
    proofs,
    registry,
    rules,
    schedules,
    search,
    session_routes,
    subjects,
    submission,
    undos,
    workers,
)
from aetheris.gateway.routes.audited import Audited, of_request
from aetheris.gateway.routes.edge import ADMISSION, Services

_log = structlog.get_logger(__name__)

_PARTS = (
    jobs,
    job_commands,
    session_routes,
    human_requests,
    history,
    search,
    proofs,
    registry,
    freezes,
    policies,
    subjects,
    rules,
    limits,
    caller,
    audit,
    workers,
    health,
    dead_letters,
    undos,
    schedules,
    budgets,
)
ROUTERS = tuple(part.router for part in _PARTS)


def build_api(services: Services) -> FastAPI:
    """The ASGI app."""
    app = FastAPI(title="Aetheris", docs_url=None, redoc_url=None, openapi_url=None, routes=[submission.route])
    app.state.services = services
    app.add_middleware(Audited, log=services.accesses)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_crash)
    for router in ROUTERS:
        app.include_router(router, dependencies=[ADMISSION])
    app.include_router(probes.router)
    return app


async def _on_problem(request: Request, error: Exception) -> Response:
    problem = cast("Problem", error)
    access = of_request(request)
    if access is not None:
        access.reason = problem.reason if isinstance(problem, UnauthorizedProblem) else problem.code
    headers: dict[str, str] = {}
    if isinstance(problem, TooMany | Unavailable):
        headers["Retry-After"] = str(problem.retry_after_s)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem.body(), problem.status, headers)


async def _on_http(_request: Request, error: Exception) -> Response:
    status = cast("HTTPException", error).status_code
    codes: Mapping[int, str] = {404: "not_found", 405: "method_not_allowed"}
    problem = Problem(codes.get(status, "http_error"), "there is no such route" if status == 404 else "not possible")
    return JSONResponse(problem.body(), status)


async def _on_validation(_request: Request, error: Exception) -> Response:
    first = cast("RequestValidationError", error).errors()[0]
    problem = BadRequestProblem("bad_request", bodies.field_path(first["loc"][1:]) or "request", str(first["msg"]))
    return JSONResponse(problem.body(), problem.status)


async def _on_crash(_request: Request, error: Exception) -> Response:
    _log.error("request failed", error=type(error).__name__)
    return JSONResponse(Problem("internal", "an unexpected error; the service's log names its class").body(), 500)
