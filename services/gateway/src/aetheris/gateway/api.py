"""The HTTP API: routes, and how answers, refusals and event streams look on the wire (docs/http-api.md)."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, cast

import httpx
import structlog
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.sse import format_sse_event
from starlette.exceptions import HTTPException
from starlette.routing import Route

from aetheris.gateway.core import preferences, submissions, wire
from aetheris.gateway.core.problems import BadRequest, Problem, Unavailable
from aetheris.gateway.core.wire import Moved
from aetheris.gateway.courses import Asked, Courses
from aetheris.gateway.feed import FeedClosed
from aetheris.gateway.handlers import Jobs, Wait, ended
from aetheris.gateway.tokens import Caller, Tokens
from aetheris.gateway.views import STATUSES, Row
from aetheris.gateway.workers import Workers
from aetheris.protocol.views.contracts import Level
from aetheris.runtime.process.health import Health

_log = structlog.get_logger(__name__)

_MAX_DRAINED_BYTES = 16 * 1024 * 1024
"""Of a body that is too large, so much is read: a client that still writes would not see the answer."""
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MAX_LIMIT = 10_000


def build_api(
    jobs: Jobs, courses: Courses, workers: Workers, *, tokens: Tokens, health: Health, keepalive_s: float
) -> FastAPI:
    """The ASGI app."""
    app = FastAPI(title="Aetheris", docs_url=None, redoc_url=None, openapi_url=None, routes=[_submission(jobs, tokens)])
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_crash)
    app.include_router(_probes(health))
    app.state.tokens = tokens
    app.include_router(_routes(jobs, courses, keepalive_s), prefix="/api")
    app.include_router(_names(workers), prefix="/api/workers")
    return app


def _probes(health: Health) -> APIRouter:
    router = APIRouter()

    @router.get("/livez")
    async def livez() -> dict[str, Any]:
        return {"alive": True}

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        reasons = dict(health.unready())
        return JSONResponse({"ready": not reasons, "unready": reasons}, 503 if reasons else 200)

    return router


async def _caller(request: Request, authorization: Annotated[str | None, Header()] = None) -> Caller:
    return cast("Tokens", request.app.state.tokens).caller(authorization)


Who = Annotated[Caller, Depends(_caller)]


def _submission(jobs: Jobs, tokens: Tokens) -> Route:
    """POST /api/jobs, the one route that is busy: a plain one, as FastAPI's own took a quarter of a submission."""

    async def submit(request: Request) -> JSONResponse:
        caller = tokens.caller(request.headers.get("authorization"))
        idempotency_key = request.headers.get("idempotency-key")
        if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
            raise BadRequest("bad_request", "Idempotency-Key", "1 to 255 visible ASCII characters")
        within_s = preferences.wait_s(request.headers.getlist("prefer"))
        body = await _body(request)
        if within_s is None:
            job_id, status = await jobs.submit(caller, body, idempotency_key)
            return JSONResponse({"job_id": job_id, "status": status}, 202)
        async with _waiting(request, within_s) as wait:
            job_id, status = await jobs.submit(caller, body, idempotency_key, wait)
        answer = {"job_id": job_id, "status": status}
        return JSONResponse(answer, 200 if ended(status) else 202, _applied(wait))

    return Route("/api/jobs", submit, methods=["POST"])


def _routes(jobs: Jobs, courses: Courses, keepalive_s: float) -> APIRouter:
    router = APIRouter()

    @router.get("/jobs")
    async def list_jobs(
        caller: Who, status: str | None = None, cursor: str | None = None, limit: str = "50"
    ) -> JSONResponse:
        page = await jobs.page(caller, _listed(status), cursor, _number("limit", limit, 1, 200))
        return JSONResponse({"jobs": [row.summary() for row in page.rows], "cursor": page.cursor})

    @router.get("/jobs/{job_id}")
    async def job(request: Request, caller: Who, job_id: str) -> JSONResponse:
        within_s = preferences.wait_s(request.headers.getlist("prefer"))
        if within_s is None:
            return JSONResponse(await jobs.job(caller, job_id))
        async with _waiting(request, within_s) as wait:
            view = await jobs.job(caller, job_id, wait)
        return JSONResponse(view, headers=_applied(wait))

    @router.post("/jobs/{job_id}/continue")
    async def continue_job(request: Request, caller: Who, job_id: str) -> JSONResponse:
        new_id, status = await jobs.go_on_from(caller, job_id, await _body(request))
        return JSONResponse({"job_id": new_id, "status": status, "continues": job_id}, 202)

    @router.post("/jobs/{job_id}/cancel")
    async def cancel(request: Request, caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.cancel(caller, job_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/pause")
    async def pause(request: Request, caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.pause(caller, job_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/resume")
    async def resume(request: Request, caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.resume(caller, job_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/contracts/{execution_id}/cancel")
    async def call_off(request: Request, caller: Who, job_id: str, execution_id: str) -> JSONResponse:
        answered, body = await jobs.call_off(caller, job_id, execution_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/signal")
    async def signal(request: Request, caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.signal(caller, job_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/reconcile")
    async def reconcile(caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.reconcile(caller, job_id)
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/jobs/{job_id}/contracts/{execution_id}/resolve")
    async def resolve(request: Request, caller: Who, job_id: str, execution_id: str) -> JSONResponse:
        answered, body = await jobs.resolve(caller, job_id, execution_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.get("/jobs/{job_id}/events")
    async def events(
        request: Request,
        caller: Who,
        job_id: str,
        *,
        after: str = "0",
        limit: str = str(_MAX_LIMIT),
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        seen = _number("after", after, 0)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return JSONResponse(await jobs.events(caller, job_id, seen, _number("limit", limit, 1, _MAX_LIMIT)))
        if last_event_id:
            seen = _number("Last-Event-ID", last_event_id, 0)
        row = await jobs.check(caller, job_id)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(_sse(jobs, row, seen, keepalive_s), media_type="text/event-stream", headers=headers)

    @router.get("/jobs/{job_id}/contracts")
    async def contracts(caller: Who, job_id: str, level: str = Level.RESULT.value) -> JSONResponse:
        if level not in list(Level):
            raise BadRequest("bad_request", "level", f"must be one of {', '.join(Level)}")
        return JSONResponse({"contracts": await jobs.contracts(caller, job_id, Level(level))})

    @router.get("/jobs/{job_id}/replay")
    async def replay(caller: Who, job_id: str, to: str | None = None, steps: str = "0") -> JSONResponse:
        with_steps = _number("steps", steps, 0, 1) == 1
        return JSONResponse(await courses.replay(caller, job_id, to, steps=with_steps))

    @router.get("/jobs/{job_id}/effects")
    async def effects(caller: Who, job_id: str) -> JSONResponse:
        return JSONResponse(await courses.effects(caller, job_id))

    @router.get("/jobs/{job_id}/ledger")
    async def ledger(caller: Who, job_id: str) -> JSONResponse:
        return JSONResponse(await courses.ledger(caller, job_id))

    @router.get("/jobs/{job_id}/trace")
    async def trace(caller: Who, job_id: str) -> JSONResponse:
        return JSONResponse(await courses.trace(caller, job_id))

    @router.get("/effects")
    async def why(
        caller: Who,
        *,
        external_id: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        where: Annotated[list[str] | None, Query()] = None,
        cursor: str | None = None,
    ) -> JSONResponse:
        return JSONResponse(await courses.why(caller, Asked(external_id, tool, since, where or (), cursor)))

    @router.get("/approvals")
    async def approvals(caller: Who, cursor: str | None = None, limit: str = "50") -> JSONResponse:
        return JSONResponse(await jobs.asked(caller, cursor, _number("limit", limit, 1, 200)))

    @router.post("/ecs/respond")
    async def respond(request: Request, caller: Who) -> JSONResponse:
        answered, body = await jobs.respond(caller, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    @router.post("/ecs/continue")
    async def go_on(request: Request, caller: Who) -> JSONResponse:
        return JSONResponse(await jobs.go_on(caller, await _body(request)))

    @router.get("/ecs/status/{request_id}")
    async def request_status(caller: Who, request_id: str) -> JSONResponse:
        return JSONResponse(await jobs.request(caller, request_id))

    @router.get("/tools")
    async def tools(caller: Who) -> JSONResponse:
        return JSONResponse({"tools": await jobs.tools(caller)})

    @router.get("/models")
    async def models(_who: Who) -> JSONResponse:
        return JSONResponse({"models": jobs.models()})

    for proof in ("verify", "stream", "evidence", "inclusion"):
        router.add_api_route(f"/jobs/{{job_id}}/{proof}", _proof(jobs, proof))
    for what in ("checkpoint", "consistency", "leaves"):
        router.add_api_route(f"/seals/{what}", _seals(jobs, what))
    return router


def _names(workers: Workers) -> APIRouter:
    router = APIRouter()

    @router.get("")
    async def names(_who: Who) -> JSONResponse:
        return JSONResponse({"workers": workers.all()})

    @router.get("/{worker_id}")
    async def name(caller: Who, worker_id: str) -> JSONResponse:
        return JSONResponse(await workers.one(caller, worker_id))

    @router.post("/{worker_id}/end")
    async def end(request: Request, caller: Who, worker_id: str) -> JSONResponse:
        answered, body = await workers.end(caller, worker_id, await _body(request))
        return JSONResponse(body, 200 if answered else 202)

    return router


def _proof(jobs: Jobs, what: str) -> Callable[..., Awaitable[Response]]:
    async def proof(caller: Who, job_id: str) -> Response:
        return _relayed(await jobs.proof(caller, job_id, what))

    return proof


def _seals(jobs: Jobs, what: str) -> Callable[..., Awaitable[Response]]:
    async def seals(request: Request, _who: Who) -> Response:
        return _relayed(await jobs.seals(what, request.query_params))

    return seals


def _relayed(answer: httpx.Response) -> Response:
    """The verifier's answer, as it is."""
    kept = ("content-type", "retry-after")
    headers = {name: answer.headers[name] for name in kept if name in answer.headers}
    if answer.status_code == 422:
        return JSONResponse(BadRequest("bad_request", "query", "not as the verifier takes it").body(), 400)
    return Response(answer.content, answer.status_code, headers)


@asynccontextmanager
async def _waiting(request: Request, within_s: int) -> AsyncGenerator[Wait]:
    """A wait that is over at the latest when the request's client has gone; its body must have been read."""
    leaving = asyncio.create_task(_left(request))
    try:
        yield Wait(within_s, leaving)
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _applied(wait: Wait) -> dict[str, str]:
    return {"Preference-Applied": f"wait={wait.within_s}"}


async def _body(request: Request) -> bytes:
    """The request's bytes.

    Raises:
        BadRequest: more than a plan may have.
    """
    taken, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= submissions.MAX_BODY_BYTES:
            taken += chunk
        elif size > _MAX_DRAINED_BYTES:
            break
    if size > submissions.MAX_BODY_BYTES:
        raise submissions.plan_too_large(submissions.MAX_BODY_BYTES)
    return bytes(taken)


def _number(field: str, text: str, least: int, most: int = 2**53) -> int:
    if not re.fullmatch(r"[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise BadRequest("bad_request", field, f"must be a whole number from {least} to {most}")
    return int(text)


def _listed(status: str | None) -> str | None:
    """A status that jobs are listed by; else an empty list would look like an answer."""
    if status is not None and status not in STATUSES:
        raise BadRequest("bad_request", "status", f"must be one of {', '.join(STATUSES)}")
    return status


async def _sse(jobs: Jobs, row: Row, after: int, keepalive_s: float) -> AsyncIterator[bytes]:
    """The stream's bytes; a comment whenever nothing was said for a while."""
    yield format_sse_event(comment="stream", retry=1000)
    async with aclosing(_paced(jobs.stream(row, after), keepalive_s)) as events:
        try:
            async for portion in events:
                yield format_sse_event(comment="alive") if portion is None else b"".join(map(wire.sse_bytes, portion))
        except FeedClosed:
            return
        except Exception as error:  # noqa: BLE001  the answer has begun: the client resumes
            _log.warning("event stream broke", error=type(error).__name__)


async def _paced(portions: AsyncIterator[list[Moved]], pause_s: float) -> AsyncGenerator[list[Moved] | None]:
    """The events, and None whenever none came for `pause_s`."""
    coming: asyncio.Future[list[Moved]] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(portions))
            done, _ = await asyncio.wait({coming}, timeout=pause_s)
            if not done:
                yield None
                continue
            ready, coming = coming, None
            try:
                portion = ready.result()
            except StopAsyncIteration:
                return
            yield portion
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


async def _on_problem(_request: Request, error: Exception) -> Response:
    problem = cast("Problem", error)
    headers: dict[str, str] = {}
    if isinstance(problem, Unavailable):
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
    problem = BadRequest("bad_request", submissions.field_path(first["loc"][1:]) or "request", str(first["msg"]))
    return JSONResponse(problem.body(), problem.status)


async def _on_crash(_request: Request, error: Exception) -> Response:
    _log.error("request failed", error=type(error).__name__)
    return JSONResponse(Problem("internal", "an unexpected error; the service's log names its class").body(), 500)
