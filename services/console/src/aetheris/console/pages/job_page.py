"""One job: where it stands and why, what to do next, its timeline, what it did, and whether that can be proved."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aetheris.console.core.exact_json import NotExact, exactly_read, exactly_written
from aetheris.console.core.parked_evidence import parked_evidence
from aetheris.console.core.timeline_rows import timeline_row
from aetheris.console.pages.edge import (
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    part,
    parts_of,
    problem,
    quoted,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Job
from aetheris.sdk.client import ApiError, Unauthorized

_ROWS = 1_000
"""Events that a page of a timeline has."""
_AT_ONCE = 10_000
"""Events that the gateway tells at a time, at most."""
_VERDICTS = ("happened", "not_executed", "retry")


async def _job(request: Request, session: PersonSession) -> Response:
    return page(request, "job.html", session, job=await _read(request, session), refused="")


async def _state(request: Request, session: PersonSession) -> Response:
    return part(request, "_job_state.html", session, job=await _read(request, session))


async def _rows(request: Request, session: PersonSession) -> Response:
    """A page of the timeline, as JSON for its module: {rows, more}."""
    after = request.query_params.get("after", "0")
    events = exactly_read(await _events(request, session, {"after": after, "limit": _ROWS}))
    return JSONResponse({"rows": [timeline_row(event) for event in events], "more": len(events) == _ROWS})


async def _event(request: Request, session: PersonSession) -> Response:
    """One event, exactly."""
    seq = int(request.path_params["seq"])
    found: Any = exactly_read(await _events(request, session, {"after": max(0, seq - 1), "limit": 1}))
    if not found or str(found[0].get("seq")) != str(seq):
        return problem(request, session, 404, "Not here", "The job has no such event.")
    return page(request, "event.html", session, job_id=request.path_params["job_id"], event=found[0], seq=seq)


async def _follow(request: Request, session: PersonSession) -> Response:
    """New events as rows, as they come, until the job is sealed."""
    after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    if not after.isascii() or not after.isdecimal():
        return Response(status_code=400)
    path = f"/jobs/{quoted(request.path_params['job_id'])}/events"
    headers = {"accept": "text/event-stream", "last-event-id": after}
    rows = _followed(request, session, path, headers)
    return StreamingResponse(rows, media_type="text/event-stream")


async def _followed(
    request: Request, session: PersonSession, path: str, headers: Mapping[str, str]
) -> AsyncGenerator[str]:
    """A row for each event of the gateway's stream; its comments, which say that it lives, are passed on."""
    name, data = "", ""
    try:
        async with parts_of(request).gateway.stream(session.token, path, headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data += line[5:].strip()
                elif line.startswith(":"):
                    yield ": alive\n\n"
                elif not line:
                    if data and name != "execution_state":
                        row = timeline_row(exactly_read(data))
                        yield f"id: {row[0]}\ndata: {json.dumps(row)}\n\n"
                    name, data = "", ""
        yield "event: over\ndata: \n\n"
    except (ApiError, NotExact):
        return  # the browser asks again, from the last event that it has


async def _effects(request: Request, session: PersonSession) -> Response:
    found = exactly_read(await _of_job(request, session, "effects"))
    return part(request, "_effects.html", session, effects=found.get("effects") or [])


async def _verify(request: Request, session: PersonSession) -> Response:
    """The verifier's word, in place."""
    try:
        found: Any = exactly_read(await _of_job(request, session, "verify"))
    except Unauthorized:
        raise
    except ApiError as error:
        return part(request, "_verified.html", session, proof=None, refused=error.message)
    return part(request, "_verified.html", session, proof=found, refused="")


async def _evidence(request: Request, session: PersonSession) -> Response:
    bundle = await _of_job(request, session, "evidence")
    name = "".join(char if char.isalnum() or char in "-_" else "-" for char in request.path_params["job_id"])
    disposition = f'attachment; filename="{name}.zip"'
    return Response(bundle, media_type="application/zip", headers={"Content-Disposition": disposition})


async def _parked(request: Request, session: PersonSession) -> Response:
    """What is known of a parked step; its events are looked for in all of the job's."""
    job_id, execution_id = request.path_params["job_id"], request.path_params["execution_id"]
    shown: dict[str, Any] = {"evidence": None, "refused": ""}
    try:
        steps = (await _read(request, session)).steps
        node_id = next((step.node_id for step in steps if step.execution_id == execution_id), "")
        shown["evidence"] = parked_evidence(node_id, await _all_events(request, session))
    except Unauthorized:
        raise
    except ApiError as error:
        shown["refused"] = error.message
    may_settle = session.may("resolve")
    return part(
        request, "_parked.html", session, job_id=job_id, execution_id=execution_id, may_settle=may_settle, **shown
    )


async def _all_events(request: Request, session: PersonSession) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    while True:
        after = str(found[-1].get("seq")) if found else "0"
        events: Any = exactly_read(await _events(request, session, {"after": after, "limit": _AT_ONCE}))
        found += events
        if len(events) < _AT_ONCE:
            return found


async def _resolve(request: Request, session: PersonSession) -> Response:
    """A person's word on a parked step."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    job_id, verdict = request.path_params["job_id"], one(form, "verdict")
    body: dict[str, Any] = {"verdict": verdict, "evidence": one(form, "evidence").strip()}
    body |= {"accept_code": one(form, "accept_code")} if one(form, "accept_code") else {}
    try:
        _check(verdict, body["evidence"])
        if verdict == "happened" and one(form, "result").strip():
            body["result"] = exactly_read(one(form, "result"))
        path = f"/jobs/{quoted(job_id)}/contracts/{quoted(request.path_params['execution_id'])}/resolve"
        await parts_of(request).gateway.post(session.token, path, exactly_written(body))
    except Unauthorized:
        raise
    except (ApiError, NotExact) as error:
        refused = str(error)
        return page(request, "job.html", session, 409, job=await _read(request, session), refused=refused)
    return led(f"/jobs/{job_id}")


def _check(verdict: str, evidence: str) -> None:
    if verdict not in _VERDICTS or not evidence:
        raise NotExact("say what became of it, and how you know")


async def _read(request: Request, session: PersonSession) -> Job:
    return Job.model_validate_json(await _of_job(request, session))


async def _events(request: Request, session: PersonSession, params: Mapping[str, Any]) -> bytes:
    path = f"/jobs/{quoted(request.path_params['job_id'])}/events"
    return await parts_of(request).gateway.get(session.token, path, params)


async def _of_job(request: Request, session: PersonSession, what: str = "") -> bytes:
    path = f"/jobs/{quoted(request.path_params['job_id'])}" + (f"/{what}" if what else "")
    return await parts_of(request).gateway.get(session.token, path)


ROUTES = [
    Route("/jobs/{job_id}", signed_in(_job)),
    Route("/jobs/{job_id}/state", signed_in(_state, by_itself=True)),
    Route("/jobs/{job_id}/rows", signed_in(_rows)),
    Route("/jobs/{job_id}/events/{seq:int}", signed_in(_event)),
    Route("/jobs/{job_id}/follow", signed_in(_follow, by_itself=True)),
    Route("/jobs/{job_id}/effects", signed_in(_effects)),
    Route("/jobs/{job_id}/verify", signed_in(_verify)),
    Route("/jobs/{job_id}/evidence", signed_in(_evidence)),
    Route("/jobs/{job_id}/steps/{execution_id}/evidence", signed_in(_parked)),
    Route("/jobs/{job_id}/steps/{execution_id}/resolve", signed_in(_resolve), methods=["POST"]),
]
