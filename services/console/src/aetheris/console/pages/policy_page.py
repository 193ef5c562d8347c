"""The policy: which decides, what another would have decided before, how they differ, and that the other decides."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_read, exactly_written
from aetheris.console.core.policy_changes import as_posted, changed_lines
from aetheris.console.pages.edge import (
    Form,
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    parts_of,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api_operations import PolicyTrialPage, PolicyView
from aetheris.sdk.client import ApiError, Unauthorized

_SINCE: Mapping[str, timedelta | None] = {
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": None,
}


async def _policy(request: Request, session: PersonSession) -> Response:
    found = await _active(request, session)
    return page(request, "policy.html", session, found=found, text=found.active.policy if found.active else "")


async def _preview(request: Request, session: PersonSession) -> Response:
    """What a policy would change: in the text, and of what was decided."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    return await _shown(request, session, form)


async def _activate(request: Request, session: PersonSession) -> Response:
    """Let it decide in the place of the one that was shown, and of no other."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    said: dict[str, Any] = {"policy": as_posted(one(form, "policy")), "instead_of": _number(one(form, "instead_of"))}
    reason = one(form, "reason").strip()
    body = exactly_written({**said, **({"reason": reason} if reason else {})})
    try:
        await parts_of(request).gateway.post(session.token, "/policies", body)
    except Unauthorized:
        raise
    except ApiError as error:
        return await _shown(request, session, form, refused=error.message)
    return led("/operations/policy")


async def _shown(request: Request, session: PersonSession, form: Form, refused: str = "") -> Response:
    text, since, cursor = as_posted(one(form, "policy")), one(form, "since"), one(form, "cursor")
    found = await _active(request, session)
    was = found.active.policy if found.active is not None else ""
    trial, untried = await _tried(request, session, text, since, cursor)
    return page(
        request,
        "policy_preview.html",
        session,
        409 if refused else 200,
        found=found,
        text=text,
        since=since if since in _SINCE else "30d",
        lines=await asyncio.to_thread(changed_lines, was, text),
        is_same=was == text,
        trial=trial,
        untried=untried,
        further=bool(cursor),
        refused=refused,
    )


async def _active(request: Request, session: PersonSession) -> PolicyView:
    return PolicyView.model_validate_json(await parts_of(request).gateway.get(session.token, "/policies"))


async def _tried(
    request: Request, session: PersonSession, text: str, since: str, cursor: str
) -> tuple[PolicyTrialPage | None, str]:
    """(what it would have decided otherwise, or None and why that is not known)."""
    back = _SINCE.get(since, _SINCE["30d"])
    said: dict[str, Any] = {"policy": text}
    if back is not None:
        said["since"] = (datetime.now(UTC) - back).isoformat()
    if cursor:
        said["cursor"] = cursor
    try:
        answer = await parts_of(request).gateway.post(session.token, "/policies/trial", exactly_written(said))
    except Unauthorized:
        raise
    except ApiError as error:
        return None, error.message
    return PolicyTrialPage.model_validate(answer), ""


def _number(text: str) -> Any:
    return exactly_read(text.encode()) if text.isdecimal() and len(text) <= 15 else 0


ROUTES = [
    Route("/operations/policy", signed_in(_policy)),
    Route("/operations/policy/preview", signed_in(_preview), methods=["POST"]),
    Route("/operations/policy/activate", signed_in(_activate), methods=["POST"]),
]
