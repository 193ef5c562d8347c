"""How a job came to its steps: decisions, revisions of the plan, what depends on what; and two jobs compared."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_read
from aetheris.console.core.job_comparison import compared
from aetheris.console.pages.edge import page, parts_of, quoted, signed_in
from aetheris.console.pages.job_page import shown_job
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Job

_MOST_TRACED = 1_000
"""Steps of a job whose trace a page can hold."""


async def _plan(request: Request, session: PersonSession) -> Response:
    job_id = request.path_params["job_id"]
    job = Job.model_validate_json(await parts_of(request).gateway.get(session.token, f"/jobs/{quoted(job_id)}"))
    trace = await _trace(request, session, job_id) if len(job.steps) <= _MOST_TRACED else None
    return page(request, "job_plan.html", session, trace=trace, **shown_job(job))


async def _compare(request: Request, session: PersonSession) -> Response:
    job_id, other_id = request.path_params["job_id"], request.query_params.get("with", "").strip()
    shown: dict[str, Any] = {"job_id": job_id, "other_id": other_id, "steps": None, "traces": ()}
    if other_id:
        traces = await asyncio.gather(_trace(request, session, job_id), _trace(request, session, other_id))
        shown |= {"steps": compared(*traces), "traces": traces}
    return page(request, "job_compare.html", session, **shown)


async def _trace(request: Request, session: PersonSession, job_id: str) -> dict[str, Any]:
    found: Any = exactly_read(await parts_of(request).gateway.get(session.token, f"/jobs/{quoted(job_id)}/trace"))
    return found


ROUTES = [
    Route("/jobs/{job_id}/plan", signed_in(_plan)),
    Route("/jobs/{job_id}/compare", signed_in(_compare)),
]
