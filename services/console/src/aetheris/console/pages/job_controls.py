"""A job is paused, resumed or cancelled: what will happen is told before it is sent."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.controlled_steps import controlled_steps
from aetheris.console.core.exact_json import exactly_written
from aetheris.console.pages.edge import (
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    parts_of,
    problem,
    quoted,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Job
from aetheris.sdk.client import ApiError, Unauthorized

ACTIONS: Mapping[str, str] = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel"}


async def _told(request: Request, session: PersonSession) -> Response:
    """What it would do, as the job stands now."""
    return await _page(request, session)


async def _said(request: Request, session: PersonSession) -> Response:
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    job_id, action = request.path_params["job_id"], request.path_params["action"]
    if action not in ACTIONS:
        return problem(request, session, 404, "Not here", "There is no such page.")
    body: dict[str, Any] = {"reason": one(form, "reason").strip()} if one(form, "reason").strip() else {}
    if action == "cancel" and one(form, "compensate") == "1":
        body["compensate"] = True
    try:
        await parts_of(request).gateway.post(session.token, f"/jobs/{quoted(job_id)}/{action}", exactly_written(body))
    except Unauthorized:
        raise
    except ApiError as error:
        return await _page(request, session, 409, error.message)
    return led(f"/jobs/{quoted(job_id)}")


async def _page(request: Request, session: PersonSession, status: int = 200, refused: str = "") -> Response:
    action = request.path_params["action"]
    if action not in ACTIONS:
        return problem(request, session, 404, "Not here", "There is no such page.")
    path = f"/jobs/{quoted(request.path_params['job_id'])}"
    job = Job.model_validate_json(await parts_of(request).gateway.get(session.token, path))
    shown = {"job": job, "action": action, "does": ACTIONS[action], "found": controlled_steps(job.steps)}
    return page(request, "job_controls.html", session, status, refused=refused, **shown)


ROUTES = [
    Route("/jobs/{job_id}/control/{action}", signed_in(_told)),
    Route("/jobs/{job_id}/control/{action}", signed_in(_said), methods=["POST"]),
]
