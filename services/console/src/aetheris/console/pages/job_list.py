"""The list of jobs, and searches in it: what is asked for is in the URL."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.pages.edge import page, part, parts_of, signed_in
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import JobPage
from aetheris.sdk.client import ApiError, Unauthorized

STATUSES = (
    *("submitted", "running", "waiting", "paused", "frozen", "needs_upgrade"),
    *("completed", "failed", "cancelled"),
)
_OF_LIST = ("status", "agent", "label", "since")
"""What the list is filtered by; anything else is a search."""
_OF_SEARCH = ("q", "job_id", "external_id", "tool", "argument", "error", "until")
_TIMES = ("since", "until")
_LISTED = 100


async def _jobs(request: Request, session: PersonSession) -> Response:
    found, refused = await _listed(request, session)
    filters = _filters(request)
    later = urlencode({**filters, "cursor": found.cursor}) if found.cursor else ""
    same = urlencode({**filters, "cursor": request.query_params.get("cursor", "")})
    return page(
        request,
        "job_list.html",
        session,
        found=found,
        refused=refused,
        filters=filters,
        searched=[name for name in _OF_SEARCH[1:] if name in filters],
        statuses=STATUSES,
        later=later,
        same=same,
    )


async def _rows(request: Request, session: PersonSession) -> Response:
    found, refused = await _listed(request, session)
    return part(request, "_job_rows.html", session, found=found, refused=refused)


async def _listed(request: Request, session: PersonSession) -> tuple[JobPage, str]:
    """(the jobs, why there are none): a search that is refused, or still reads the log, leaves the page as it is."""
    filters = _filters(request)
    searches = any(name in filters for name in _OF_SEARCH)
    params = {**filters, "cursor": request.query_params.get("cursor"), "limit": _LISTED}
    try:
        answer = await parts_of(request).gateway.get(session.token, "/search" if searches else "/jobs", params)
    except Unauthorized:
        raise
    except ApiError as error:
        if not searches:
            raise
        return JobPage(jobs=()), error.message if error.field is None else f"{error.field}: {error.message}"
    return JobPage.model_validate_json(answer), ""


def _filters(request: Request) -> dict[str, str]:
    """What the URL says; a time without its offset is one of UTC, since that is what a browser's field gives."""
    found = {name: request.query_params.get(name, "").strip() for name in (*_OF_LIST, *_OF_SEARCH)}
    for name in _TIMES:
        if found[name] and "T" not in found[name]:
            found[name] += "T00:00:00Z"
    return {name: text for name, text in found.items() if text}


ROUTES = [Route("/jobs", signed_in(_jobs)), Route("/jobs/rows", signed_in(_rows, by_itself=True))]
