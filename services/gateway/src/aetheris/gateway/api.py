"""The HTTP API: routes, and how answers, refusals and event streams look on the wire (docs/http-api.md)."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, cast

import structlog
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.sse import format_sse_event
from starlette.exceptions import HTTPException

from aetheris.gateway.core import submissions, wire
from aetheris.gateway.feed import FeedClosed
from aetheris.gateway.handlers import Jobs, Numbered
from aetheris.gateway.problems import BadRequest, Problem, Unavailable
from aetheris.gateway.tokens import Caller, Tokens
from aetheris.gateway.views import Row
from aetheris.streams.health import Health

_log = structlog.get_logger(__name__)

_MAX_DRAINED_BYTES = 16 * 1024 * 1024
"""Of a body that is too large, so much is read: a client that still writes would not see the answer."""
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MAX_LIMIT = 10_000


def build_api(jobs: Jobs, tokens: Tokens, health: Health, keepalive_s: float) -> FastAPI:
    """The ASGI app."""
    app = FastAPI(title="Aetheris", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_crash)
    app.include_router(_probes(health))
    app.state.tokens = tokens
    app.include_router(_routes(jobs, keepalive_s), prefix="/api")
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


def _routes(jobs: Jobs, keepalive_s: float) -> APIRouter:
    router = APIRouter()

    @router.post("/jobs")
    async def submit(
        request: Request, caller: Who, idempotency_key: Annotated[str | None, Header()] = None
    ) -> JSONResponse:
        if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
            raise BadRequest("bad_request", "Idempotency-Key", "1 to 255 visible ASCII characters")
        job_id, status = await jobs.submit(caller, await _body(request), idempotency_key)
        return JSONResponse({"job_id": job_id, "status": status}, 202)

    @router.get("/jobs")
    async def list_jobs(
        caller: Who, status: str | None = None, cursor: str | None = None, limit: str = "50"
    ) -> JSONResponse:
        page = await jobs.page(caller, status, cursor, _number("limit", limit, 1, 200))
        return JSONResponse({"jobs": [row.summary() for row in page.rows], "cursor": page.cursor})

    @router.get("/jobs/{job_id}")
    async def job(caller: Who, job_id: str) -> JSONResponse:
        return JSONResponse(await jobs.job(caller, job_id))

    @router.post("/jobs/{job_id}/cancel")
    async def cancel(request: Request, caller: Who, job_id: str) -> JSONResponse:
        answered, body = await jobs.cancel(caller, job_id, await _body(request))
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

    @router.get("/jobs/{job_id}/verify")
    async def verify(caller: Who, job_id: str) -> JSONResponse:
        return _relayed(*await jobs.verify(caller, job_id))

    @router.get("/jobs/{job_id}/evidence")
    async def evidence(caller: Who, job_id: str) -> JSONResponse:
        return _relayed(*await jobs.evidence(caller, job_id))

    @router.get("/tools")
    async def tools(_who: Who) -> JSONResponse:
        return JSONResponse({"tools": jobs.tools()})

    return router


def _relayed(status: int, body: Any) -> JSONResponse:
    """The verifier's answer, as it is."""
    return JSONResponse(body, status, {"Retry-After": "1"} if status == 503 else None)


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


async def _sse(jobs: Jobs, row: Row, after: int, keepalive_s: float) -> AsyncIterator[bytes]:
    """The stream's bytes; a comment whenever nothing was said for a while."""
    yield format_sse_event(comment="stream", retry=1000)
    async with aclosing(_paced(jobs.stream(row, after), keepalive_s)) as events:
        try:
            async for event in events:
                yield format_sse_event(comment="alive") if event is None else sse_bytes(event)
        except FeedClosed:
            return
        except Exception as error:  # noqa: BLE001  the answer has begun: the client resumes
            _log.warning("event stream broke", error=type(error).__name__)


async def _paced(events: AsyncIterator[Numbered], pause_s: float) -> AsyncGenerator[Numbered | None]:
    """The events, and None whenever none came for `pause_s`."""
    coming: asyncio.Future[Numbered] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({coming}, timeout=pause_s)
            if not done:
                yield None
                continue
            ready, coming = coming, None
            try:
                event = ready.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


def sse_bytes(event: Numbered) -> bytes:
    """One event on the wire."""
    view = wire.event_view(event.sequence, event.record)
    return format_sse_event(
        data_str=json.dumps(view, ensure_ascii=False, separators=(",", ":")),
        event=wire.SSE_NAMES.get(wire.event_type_of(event.record)),
        id=str(event.sequence),
    )


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
