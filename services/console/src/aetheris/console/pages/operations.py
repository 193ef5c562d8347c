"""Operations: who executes, tools, the policy, limits, who looked; and freezing, with what it holds shown before."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_read, exactly_written
from aetheris.console.pages.edge import (
    Form,
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    part,
    parts_of,
    problem,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import JobPage
from aetheris.sdk.client import ApiError, Unauthorized

_PARTS: Mapping[str, str] = {
    "stalled": "/stalled",
    "health": "/health",
    "leases": "/leases",
    "freezes": "/freezes",
    "workers": "/workers",
    "tools": "/tools",
    "policy": "/policies",
    "limits": "/limits",
    "audit": "/audit",
}
"""Part of the page → what the gateway is asked for it."""
_SCOPES = ("agent", "tool", "tenant")
_LIVE = frozenset({"submitted", "running", "waiting", "paused", "frozen", "needs_upgrade"})
_LISTED = 100
_LOOKED_BACK = timedelta(hours=1)


async def _operations(request: Request, session: PersonSession) -> Response:
    return page(request, "operations.html", session, parts=tuple(_PARTS))


async def _part(request: Request, session: PersonSession) -> Response:
    """One of its parts; who may not see it is told so in its place."""
    name = request.path_params["name"]
    if name not in _PARTS:
        return problem(request, session, 404, "Not here", "There is no such page.")
    since = datetime.now(UTC) - _LOOKED_BACK
    params = {"limit": _LISTED, "since": since.isoformat()} if name == "audit" else {}
    try:
        found: Any = exactly_read(await parts_of(request).gateway.get(session.token, _PARTS[name], params))
    except Unauthorized:
        raise
    except ApiError as error:
        return part(request, "_operation.html", session, name=name, found=None, refused=error.message)
    return part(request, "_operation.html", session, name=name, found=found, refused="")


async def _preview(request: Request, session: PersonSession) -> Response:
    """What a freeze would hold, before it is ordered."""
    scope, name = request.query_params.get("scope", ""), request.query_params.get("name", "").strip()
    if scope not in _SCOPES or not name:
        return led("/operations")
    params = {"limit": _LISTED, **({"agent": name} if scope == "agent" else {})}
    found = JobPage.model_validate_json(await parts_of(request).gateway.get(session.token, "/jobs", params))
    held = [job for job in found.jobs if job.status in _LIVE] if scope != "tool" else []
    ends = request.query_params.get("ends") == "1"
    return page(
        request,
        "freeze.html",
        session,
        scope=scope,
        name=name,
        held=held,
        more=bool(found.cursor),
        ends=ends,
        refused="",
    )


async def _freeze(request: Request, session: PersonSession) -> Response:
    """Order a freeze, or its end."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    scope, name, ends = one(form, "scope"), one(form, "name"), one(form, "ends") == "1"
    if scope not in _SCOPES or not name:
        return led("/operations")
    try:
        path = "/freezes/end" if ends else "/freezes"
        await parts_of(request).gateway.post(session.token, path, exactly_written(_order(scope, name, form)))
    except Unauthorized:
        raise
    except ApiError as error:
        shown: dict[str, Any] = {"scope": scope, "name": name, "held": [], "more": False, "ends": ends}
        return page(request, "freeze.html", session, 409, refused=error.message, **shown)
    return led("/operations")


def _order(scope: str, name: str, form: Form) -> dict[str, Any]:
    reason = one(form, "reason").strip()
    return {scope: name, **({"reason": reason} if reason else {})}


ROUTES = [
    Route("/operations", signed_in(_operations)),
    Route("/operations/freeze", signed_in(_preview)),
    Route("/operations/freeze", signed_in(_freeze), methods=["POST"]),
    Route("/operations/parts/{name}", signed_in(_part)),
]
