"""One job: where it stands and why, what to do next, its timeline, what it did, and whether that can be proved."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aetheris.console.core.exact_json import NotExact, exactly_read, exactly_written
from aetheris.console.core.named_witnesses import NamedWitness, named_witnesses
from aetheris.console.core.parked_evidence import TELLING, parked_evidence
from aetheris.console.core.plan_graph import drawn_plan
from aetheris.console.core.record_bytes import bytes_of, shown_bytes
from aetheris.console.core.step_rows import ON_A_PAGE, shown_rows, step_rows
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
from aetheris.protocol.api import Job, JobRecord
from aetheris.protocol.base.keys import job_key, trace_id
from aetheris.sdk.client import ApiError, Unauthorized

_ROWS = 1_000
"""Events that a page of a timeline has."""
_AT_ONCE = 10_000
"""Events that the gateway tells at a time, at most."""
_PATIENCE_S = 0.4
"""How long a page waits for how a job stands."""
_EFFECTS = 50
_DIGITS = 7
_unread: set["asyncio.Task[Job]"] = set()
_VERDICTS = ("happened", "not_executed", "retry")


async def _job(request: Request, session: PersonSession) -> Response:
    """The page; without how the job stands, where its log takes long to be read: that follows by itself."""
    job_id, reading = request.path_params["job_id"], asyncio.ensure_future(_read(request, session))
    done, _ = await asyncio.wait({reading}, timeout=_PATIENCE_S)
    if not done:
        _unread.add(reading)  # it goes on: what the gateway has read of the log it keeps
        reading.add_done_callback(_forget)
        return page(request, "job.html", session, job_id=job_id, job=None, refused="")
    return page(request, "job.html", session, refused="", **shown_job(reading.result()))


async def _state(request: Request, session: PersonSession) -> Response:
    return part(request, "_job_state.html", session, **shown_job(await _read(request, session)))


async def _steps(request: Request, session: PersonSession) -> Response:
    """Some of all of its steps."""
    job, at = await _read(request, session), place_of(request)
    rows = step_rows(job.steps)
    shown = rows[at : at + ON_A_PAGE]
    return page(request, "job_steps.html", session, job=job, rows=shown, **places(at, ON_A_PAGE, len(rows)))


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
    found_record = JobRecord.model_validate_json(await _record_bytes(request, session))
    record = shown_bytes(found_record.key, found_record.headers, found_record.value)
    place = f"{found_record.topic}[{found_record.partition}] at {found_record.offset}"
    job_id = request.path_params["job_id"]
    return page(request, "event.html", session, job_id=job_id, event=found[0], seq=seq, record=record, place=place)


async def _record(request: Request, session: PersonSession) -> Response:
    """The bytes of an event's record, or all of it as JSON, as a file."""
    whole = request.query_params.get("whole") == "1"
    raw = await _record_bytes(request, session)
    body = raw if whole else bytes_of(JobRecord.model_validate_json(raw).value)
    name = f"{_file_name(request)}-{request.path_params['seq']}.{'record.json' if whole else 'bin'}"
    return _file(body, "application/json" if whole else "application/octet-stream", name)


async def _record_bytes(request: Request, session: PersonSession) -> bytes:
    return await _of_job(request, session, f"events/{request.path_params['seq']}/record")


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
    """Some of what it did: the first for the job's own page, else a page of them."""
    at = place_of(request)
    path = f"/jobs/{quoted(request.path_params['job_id'])}/effects"
    answer = await parts_of(request).gateway.get(session.token, path, {"after": at, "limit": _EFFECTS})
    found: Any = exactly_read(answer)
    effects: list[Any] = found.get("effects") or []
    count = int(str(found.get("effect_count", len(effects))))
    job_id = request.path_params["job_id"]
    shown: dict[str, Any] = {"job_id": job_id, "effects": effects, "place": at, **places(at, _EFFECTS, count)}
    if request.headers.get("hx-request"):
        return part(request, "_effects.html", session, **shown)
    return page(request, "job_effects.html", session, **shown)


async def _verify(request: Request, session: PersonSession) -> Response:
    """The verifier's word, in place."""
    try:
        found: Any = exactly_read(await _of_job(request, session, "verify"))
    except Unauthorized:
        raise
    except ApiError as error:
        return part(request, "_verified.html", session, proof=None, witnesses=None, refused=error.message)
    witnesses = await _witnesses(request, session) if found.get("seal") else None
    return part(request, "_verified.html", session, proof=found, witnesses=witnesses, refused="")


async def _witnesses(request: Request, session: PersonSession) -> list[NamedWitness] | None:
    """Who saw its seal in the log of seals; None where that can't be told now."""
    try:
        return named_witnesses((await _of_job(request, session, "inclusion")).decode())
    except Unauthorized:
        raise
    except (ApiError, UnicodeDecodeError):
        return None


async def _evidence(request: Request, session: PersonSession) -> Response:
    bundle = await _of_job(request, session, "evidence")
    return _file(bundle, "application/zip", f"{_file_name(request)}.zip")


def _file_name(request: Request) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in request.path_params["job_id"])


def _file(body: bytes, media_type: str, name: str) -> Response:
    return Response(body, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _leases(request: Request, session: PersonSession) -> Response:
    """The calls that are under way now, each with its lease."""
    found: Any = exactly_read(await _of_job(request, session, "leases"))
    return part(request, "_leases.html", session, found=found, job_id=request.path_params["job_id"])


async def _parked(request: Request, session: PersonSession) -> Response:
    """What is known of a parked step."""
    job_id, execution_id = request.path_params["job_id"], request.path_params["execution_id"]
    shown: dict[str, Any] = {"evidence": None, "refused": ""}
    try:
        steps = (await _read(request, session)).steps
        node_id = next((step.node_id for step in steps if step.execution_id == execution_id), "")
        shown["evidence"] = parked_evidence(node_id, await _events_about(request, session, node_id))
    except Unauthorized:
        raise
    except ApiError as error:
        shown["refused"] = error.message
    may_settle = session.may("resolve")
    return part(
        request, "_parked.html", session, job_id=job_id, execution_id=execution_id, may_settle=may_settle, **shown
    )


async def _events_about(request: Request, session: PersonSession, node_id: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    while True:
        after = str(found[-1].get("seq")) if found else "0"
        meant = {"after": after, "limit": _AT_ONCE, "node_id": node_id, "type": TELLING}
        events: Any = exactly_read(await _events(request, session, meant))
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
        return page(request, "job.html", session, 409, refused=refused, **shown_job(await _read(request, session)))
    return led(f"/jobs/{job_id}")


def _check(verdict: str, evidence: str) -> None:
    if verdict not in _VERDICTS or not evidence:
        raise NotExact("say what became of it, and how you know")


def place_of(request: Request) -> int:
    """How many of a list are passed over, as the URL says; 0 where it says nothing that makes sense."""
    after = request.query_params.get("after", "0")
    return int(after) if after.isascii() and after.isdecimal() and len(after) <= _DIGITS else 0


def places(at: int, size: int, count: int) -> dict[str, Any]:
    """Of a page of a list: {count, before, behind}, the places where the pages around it begin, or None."""
    behind = at + size if at + size < count else None
    return {"count": count, "before": max(0, at - size) if at > 0 else None, "behind": behind}


def shown_job(job: Job) -> dict[str, Any]:
    """What pages show of a job: itself, rows of its steps, how many there are, and its plan, drawn."""
    rows = step_rows(job.steps)
    drawn = drawn_plan(job.steps)
    shown: dict[str, Any] = {"job": job, "job_id": job.job_id, "rows": shown_rows(rows), "count": len(rows)}
    return {**shown, "drawn": drawn, "job_trace": trace_id(job_key(job.job_id))}


def _forget(reading: "asyncio.Task[Job]") -> None:
    _unread.discard(reading)
    if not reading.cancelled():
        reading.exception()  # who asks again is told


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
    Route("/jobs/{job_id}/leases", signed_in(_leases, by_itself=True)),
    Route("/jobs/{job_id}/rows", signed_in(_rows)),
    Route("/jobs/{job_id}/events/{seq:int}", signed_in(_event)),
    Route("/jobs/{job_id}/events/{seq:int}/record", signed_in(_record)),
    Route("/jobs/{job_id}/steps", signed_in(_steps)),
    Route("/jobs/{job_id}/follow", signed_in(_follow, by_itself=True)),
    Route("/jobs/{job_id}/effects", signed_in(_effects)),
    Route("/jobs/{job_id}/verify", signed_in(_verify)),
    Route("/jobs/{job_id}/evidence", signed_in(_evidence)),
    Route("/jobs/{job_id}/steps/{execution_id}/evidence", signed_in(_parked)),
    Route("/jobs/{job_id}/steps/{execution_id}/resolve", signed_in(_resolve), methods=["POST"]),
]
