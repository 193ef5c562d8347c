"""What each call of a job has come to, move by move."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_read
from aetheris.console.pages.edge import page, parts_of, quoted, signed_in
from aetheris.console.pages.job_page import place_of, places
from aetheris.console.sessions import PersonSession

_ON_A_PAGE = 100


async def _contracts(request: Request, session: PersonSession) -> Response:
    """Some of the job's execution contracts, as far as they are for people: no arguments."""
    job_id, at = request.path_params["job_id"], place_of(request)
    path, asked = f"/jobs/{quoted(job_id)}/contracts", {"level": "transition"}
    answer = await parts_of(request).gateway.get(session.token, path, asked)
    read: Any = await asyncio.to_thread(exactly_read, answer)
    found: list[Any] = read.get("contracts") or []
    shown: dict[str, Any] = {"job_id": job_id, "rows": found[at : at + _ON_A_PAGE], "place": at}
    return page(request, "job_contracts.html", session, **shown, **places(at, _ON_A_PAGE, len(found)))


ROUTES = [Route("/jobs/{job_id}/contracts", signed_in(_contracts))]
