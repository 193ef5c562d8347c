"""Many requests answered at once: each is shown exactly, chosen by itself, and answered for exactly what was seen."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_written
from aetheris.console.core.request_groups import RequestGroup, group_of, may_be_together, together
from aetheris.console.core.shown_requests import ShownRequest
from aetheris.console.pages.edge import Form, form_of, not_of_this_session, one, page, part, parts_of, signed_in
from aetheris.console.pages.open_requests import listed_requests, read_request
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Action
from aetheris.sdk.client import ApiError, ResourceNotFound, Unauthorized

_AT_A_TIME = 8
"""Requests that are asked of the gateway at the same time."""
_ACTIONS: dict[str, Action] = {"approve": "approve", "reject": "reject"}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one that was chosen."""

    shown: ShownRequest
    said: str
    is_taken: bool


async def _together(request: Request, session: PersonSession) -> Response:
    return _page(request, session, await _groups(request, session))


async def _news(request: Request, session: PersonSession) -> Response:
    """Whether all groups that were seen are as they were: nothing, or that one is not."""
    seen = set(request.query_params.getlist("seen"))
    if seen <= {group.seen for group in await _groups(request, session)}:
        return Response(status_code=204)
    return part(request, "_together_changed.html", session)


async def _answer(request: Request, session: PersonSession) -> Response:
    """All that were chosen, or none: where one is no longer what was seen, nothing is sent."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    action = _ACTIONS.get(one(form, "action"))
    chosen = list(dict.fromkeys(form.get("request", ())))
    if action is None or not chosen:
        return await _refused(request, session, "Nothing was chosen: nothing was sent.", 400)
    found = await _read(request, session, chosen)
    if _differs(found, chosen, form):
        refused = "What you chose changed since you looked: nothing was sent. This is how it stands now."
        return await _refused(request, session, refused, 409)
    comment = one(form, "comment").strip()
    outcomes = [await _sent(request, session, shown, action, comment) for shown in found]
    return _page(request, session, await _groups(request, session), outcomes=outcomes, action=action)


def _differs(found: Sequence[ShownRequest], chosen: Sequence[str], form: Form) -> bool:
    if [shown.id for shown in found] != list(chosen) or len({group_of(shown) for shown in found}) != 1:
        return True
    return any(not may_be_together(shown) or shown.seen != one(form, f"seen.{shown.id}") for shown in found)


async def _sent(
    request: Request, session: PersonSession, shown: ShownRequest, action: Action, comment: str
) -> _Outcome:
    body = {"request_id": shown.id, "action": action, **({"comment": comment} if comment else {})}
    try:
        answer = await parts_of(request).gateway.post(session.token, "/ecs/respond", exactly_written(body))
    except Unauthorized:
        raise
    except ApiError as error:
        return _Outcome(shown, error.message, is_taken=False)
    return _Outcome(shown, "" if answer.get("event") else "taken; the log has not answered yet", is_taken=True)


async def _refused(request: Request, session: PersonSession, refused: str, status: int) -> Response:
    return _page(request, session, await _groups(request, session), status, refused=refused)


def _page(
    request: Request,
    session: PersonSession,
    groups: Sequence[RequestGroup],
    status: int = 200,
    *,
    refused: str = "",
    outcomes: Sequence[_Outcome] = (),
    action: str = "",
) -> Response:
    return page(
        request,
        "together.html",
        session,
        status,
        groups=groups,
        refused=refused,
        outcomes=outcomes,
        action=action,
    )


async def _groups(request: Request, session: PersonSession) -> list[RequestGroup]:
    listed = await listed_requests(request, session)
    return together(await _read(request, session, [row.request_id for row in listed.approvals]))


async def _read(request: Request, session: PersonSession, ids: Sequence[str]) -> list[ShownRequest]:
    """Those that are there, in this order."""
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def read(id_: str) -> ShownRequest | None:
        async with slots:
            try:
                return await read_request(request, session, id_)
            except ResourceNotFound:
                return None

    return [shown for shown in await asyncio.gather(*map(read, ids)) if shown is not None]


ROUTES = [
    Route("/inbox/together", signed_in(_together)),
    Route("/inbox/together", signed_in(_answer), methods=["POST"]),
    Route("/inbox/together/news", signed_in(_news, by_itself=True)),
]
