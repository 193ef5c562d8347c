"""POST /api/jobs, the one route that is busy: a plain one, as FastAPI's own took a quarter of a submission."""

import re
from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Route

from aetheris.gateway.core import preferences
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.routes.edge import (
    PREFER,
    admitted_to,
    also_takes,
    applied,
    body_of,
    services_of,
    takes,
    waiting,
)
from aetheris.protocol.api import Submission, Submitted

_PATH = "/api/jobs"
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


async def submit(request: Request) -> Response:
    """Submit a plan, or a goal that a model plans for."""
    services = services_of(request)
    caller = await admitted_to("POST /api/jobs", request)
    idempotency_key = request.headers.get("idempotency-key")
    if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise BadRequestProblem("bad_request", "Idempotency-Key", "1 to 255 visible ASCII characters")
    within_s = preferences.wait_s(request.headers.getlist("prefer"))
    body = await body_of(request)
    if within_s is None:
        return _reply(await services.intake.submit(caller, body, idempotency_key), 202)
    async with waiting(request, caller, within_s) as wait:
        taken = await services.intake.submit(caller, body, idempotency_key, wait)
    return _reply(taken, 200 if taken.ended else 202, applied(wait))


def _reply(taken: Submitted, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """As `json_reply`, its texts written at once."""
    return Response(taken.model_dump_json(exclude_unset=True), status, headers, "application/json")


route = Route(_PATH, submit, methods=["POST"])
described = APIRoute(
    _PATH,
    submit,
    methods=["POST"],
    status_code=202,
    response_model=Submitted,
    responses={200: {"model": Submitted, "description": "The job has ended (`Prefer: wait=N`)"}},
    tags=["jobs"],
    openapi_extra={
        **takes(Submission),
        **also_takes("header", Idempotency_Key="The same key and request name the same job", Prefer=PREFER),
    },
)
"""The same, as the API's description has it."""
