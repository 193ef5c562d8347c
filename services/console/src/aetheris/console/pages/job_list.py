"""The list of jobs, with what the public API can filter by in the URL."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.pages.edge import page, part, parts_of, signed_in
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import JobPage

STATUSES = (
    *("submitted", "running", "waiting", "paused", "frozen", "needs_upgrade"),
    *("completed", "failed", "cancelled"),
)
_FILTERS = ("status", "agent", "label", "since")
_LISTED = 100


async def _jobs(request: Request, session: PersonSession) -> Response:
    found = await _listed(request, session)
    filters = _filters(request)
    later = urlencode({**filters, "cursor": found.cursor}) if found.cursor else ""
    same = urlencode({**filters, "cursor": request.query_params.get("cursor", "")})
    return page(
        request, "job_list.html", session, found=found, filters=filters, statuses=STATUSES, later=later, same=same
    )


async def _rows(request: Request, session: PersonSession) -> Response:
    return part(request, "_job_rows.html", session, found=await _listed(request, session))


async def _listed(request: Request, session: PersonSession) -> JobPage:
    params = {**_filters(request), "cursor": request.query_params.get("cursor"), "limit": _LISTED}
    return JobPage.model_validate_json(await parts_of(request).gateway.get(session.token, "/jobs", params))


def _filters(request: Request) -> dict[str, str]:
    """What the URL says; a time without its offset is one of UTC, since that is what a browser's field gives."""
    found = {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    since = found["since"]
    if since and "T" not in since:
        found["since"] = f"{since}T00:00:00Z"
    return {name: text for name, text in found.items() if text}


ROUTES = [Route("/jobs", signed_in(_jobs)), Route("/jobs/rows", signed_in(_rows, by_itself=True))]
