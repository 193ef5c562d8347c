"""What starts jobs by itself: schedulers tell it, people read it."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import Raw, RouteServices, Who, json_reply, takes
from aetheris.protocol import api_schedules

router = APIRouter(prefix="/api/schedules", tags=["schedules"])


@router.get("", response_model=api_schedules.ScheduleList)
async def schedules(caller: Who, deps: RouteServices) -> JSONResponse:
    """What starts jobs of the tenant, when next, what it started last and how that stands; and what can't start any."""
    return json_reply(await deps.schedules.view(caller))


@router.post("", response_model=api_schedules.ReportTaken, openapi_extra=takes(api_schedules.SchedulerReport))
async def tell(caller: Who, deps: RouteServices, body: Raw) -> JSONResponse:
    """What a scheduler of the caller's has, and has started last: shown to people, and nothing more."""
    return json_reply(await deps.schedules.tell(caller, body))
