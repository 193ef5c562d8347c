"""What was spent by jobs, agents and the tenant; and the limits of every tenant, for who administers."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.routes.edge import RouteServices, Who, json_reply, time_of
from aetheris.protocol import api_budgets

router = APIRouter(prefix="/api", tags=["limits"])


@router.get("/budgets", response_model=api_budgets.BudgetsView)
async def budgets(caller: Who, deps: RouteServices, since: str | None = None) -> JSONResponse:
    """What the tenant's newest jobs spent of their rules' budgets and of their models' limits, and together."""
    return json_reply(await deps.budgets.view(caller, time_of("since", since)))


@router.get("/quotas", response_model=api_budgets.QuotaList)
async def quotas(_caller: Who, deps: RouteServices) -> JSONResponse:
    """Every tenant's limits, what of them is left, and how many of its jobs have not ended."""
    return json_reply(await deps.limits.all_tenants(deps.logins.tenants))
