"""How a job came to its steps: decisions, revisions of the plan, what depends on what; and two jobs compared."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_read
from aetheris.console.core.job_comparison import ComparedStep, compared
from aetheris.console.pages.edge import page, parts_of, quoted, signed_in
from aetheris.console.pages.job_page import place_of, places, shown_job
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Job

_ON_A_PAGE = 200
_AT_ONCE = 10_000
"""Steps that the gateway is asked for at a time, of two jobs that are compared."""


async def _plan(request: Request, session: PersonSession) -> Response:
    job_id, at = request.path_params["job_id"], place_of(request)
    answer = parts_of(request).gateway.get(session.token, f"/jobs/{quoted(job_id)}")
    job, trace = await asyncio.gather(answer, _trace(request, session, job_id, at, _ON_A_PAGE))
    shown = shown_job(Job.model_validate_json(job))
    shown["keys"] = {step.get("node_id"): step.get("keys") for step in trace.get("steps") or ()}
    shown |= {"trace": trace, "place": at, **places(at, _ON_A_PAGE, shown["count"])}
    return page(request, "job_plan.html", session, **shown)


async def _compare(request: Request, session: PersonSession) -> Response:
    job_id, other_id = request.path_params["job_id"], request.query_params.get("with", "").strip()
    shown: dict[str, Any] = {"job_id": job_id, "other_id": other_id, "steps": None, "traces": ()}
    if other_id:
        traces = await asyncio.gather(_steps(request, session, job_id), _steps(request, session, other_id))
        steps, at = await asyncio.to_thread(compared, *traces), place_of(request)
        differ = [step for step in steps if not step.is_equal]
        rows = steps if len(steps) <= _ON_A_PAGE else differ[at : at + _ON_A_PAGE]
        shown |= {"steps": rows, "traces": traces, **_counted(steps, differ)}
        shown |= places(at, _ON_A_PAGE, len(differ) if len(steps) > _ON_A_PAGE else len(steps))
    return page(request, "job_compare.html", session, **shown)


def _counted(steps: list[ComparedStep], differ: list[ComparedStep]) -> dict[str, Any]:
    return {"of": len(steps), "same": len(steps) - len(differ), "without_equal": len(steps) > _ON_A_PAGE}


async def _steps(request: Request, session: PersonSession, job_id: str) -> dict[str, Any]:
    """{job, steps} of all of a job's steps, read so many at a time."""
    found = await _trace(request, session, job_id, 0, _AT_ONCE)
    steps: list[Any] = found.get("steps") or []
    count = int(str(found.get("step_count", len(steps))))
    while len(steps) < count:
        more = (await _trace(request, session, job_id, len(steps), _AT_ONCE)).get("steps") or []
        if not more:
            break
        steps += more
    return {"job": found.get("job") or {}, "steps": steps}


async def _trace(request: Request, session: PersonSession, job_id: str, after: int, limit: int) -> dict[str, Any]:
    path, asked = f"/jobs/{quoted(job_id)}/trace", {"after": after, "limit": limit}
    answer = await parts_of(request).gateway.get(session.token, path, asked)
    found: Any = await asyncio.to_thread(exactly_read, answer)
    return found


ROUTES = [
    Route("/jobs/{job_id}/plan", signed_in(_plan)),
    Route("/jobs/{job_id}/compare", signed_in(_compare)),
]
