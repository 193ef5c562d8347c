"""What starts jobs by itself: when next, what it started last and what came of that, and what could start none."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.pages.edge import page, parts_of, signed_in
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api_schedules import ScheduleList


async def _schedules(request: Request, session: PersonSession) -> Response:
    answer = await parts_of(request).gateway.get(session.token, "/schedules")
    told = ScheduleList.model_validate_json(answer)
    return page(request, "schedules.html", session, schedulers=told.schedulers)


ROUTES = [Route("/operations/schedules", signed_in(_schedules))]
