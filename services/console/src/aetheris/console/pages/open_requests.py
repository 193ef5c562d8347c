"""What waits for a person, as the gateway has it."""

from starlette.requests import Request

from aetheris.console.core.shown_requests import ShownRequest, shown_request
from aetheris.console.pages.edge import parts_of, quoted
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import ApprovalPage
from aetheris.sdk.client import ApiError

_LISTED = 100


async def listed_requests(request: Request, session: PersonSession) -> ApprovalPage:
    """The open requests, oldest first; raises ApiError."""
    params = {"limit": _LISTED, "cursor": request.query_params.get("cursor")}
    return ApprovalPage.model_validate_json(await parts_of(request).gateway.get(session.token, "/approvals", params))


async def read_request(request: Request, session: PersonSession, request_id: str) -> ShownRequest:
    """One of them, with its arguments; raises ApiError."""
    shown = shown_request(await parts_of(request).gateway.get(session.token, f"/ecs/status/{quoted(request_id)}"))
    if shown.id != request_id:
        raise ApiError("request_differs", "the gateway names another request than was asked for")
    return shown
