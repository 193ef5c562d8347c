"""What jobs, agents and the tenant spent of budgets, and every tenant's limits, for who administers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.pages.edge import page, parts_of, signed_in
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api_budgets import BudgetsView, QuotaList

_AGES: Mapping[str, timedelta] = {
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_SHOWN = 100
"""Jobs, those that were created last."""


async def _budgets(request: Request, session: PersonSession) -> Response:
    age = request.query_params.get("age", "7d")
    age = age if age in _AGES else "7d"
    since = (datetime.now(UTC) - _AGES[age]).isoformat(timespec="seconds")
    answer = await parts_of(request).gateway.get(session.token, "/budgets", {"since": since})
    found = BudgetsView.model_validate_json(answer)
    return page(request, "budgets.html", session, found=found, jobs=found.jobs[:_SHOWN], age=age)


async def _quotas(request: Request, session: PersonSession) -> Response:
    answer = await parts_of(request).gateway.get(session.token, "/quotas")
    return page(request, "quotas.html", session, found=QuotaList.model_validate_json(answer))


ROUTES = [
    Route("/operations/budgets", signed_in(_budgets)),
    Route("/operations/quotas", signed_in(_quotas)),
]
