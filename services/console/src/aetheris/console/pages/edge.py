"""What the pages share: who looks, what is rendered around them, what becomes of the gateway's refusals."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from aetheris.console.gateway_client import GatewayClient
from aetheris.console.guard import FormTooLarge, form_body
from aetheris.console.provider import LoginProvider
from aetheris.console.rendered import rendered
from aetheris.console.sessions import PersonSession, Sessions
from aetheris.sdk.client import ApiError, ResourceNotFound, Unauthorized, Unreachable

_MOST_FIELDS = 2_000
_PAGES = (("/inbox", "Inbox"), ("/jobs", "Jobs"), ("/operations", "Operations"))
"""Where the bar leads."""

Page = Callable[[Request, PersonSession], Awaitable[Response]]
Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """What answers requests. `https`: whether browsers come by https; `trace_url`: where they find a trace, or ``."""

    gateway: GatewayClient
    sessions: Sessions
    provider: LoginProvider | None
    https: bool
    base_url: Callable[[], str]
    trace_url: str = ""

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; by https one that no other host and no plain page can set."""
        return "__Host-aetheris-session" if self.https else "aetheris-session"


def parts_of(request: Request) -> ConsoleParts:
    """What answers this request."""
    return cast("ConsoleParts", request.app.state.parts)


def page(
    request: Request, template: str, session: PersonSession | None = None, status: int = 200, **data: Any
) -> HTMLResponse:
    """A whole page."""
    known = {"nonce": request.state.nonce, "session": session, "at": request.url.path, "pages": _PAGES}
    known["trace_url"] = parts_of(request).trace_url
    return HTMLResponse(rendered(template, **{**known, **data}), status)


def part(request: Request, template: str, session: PersonSession | None, **data: Any) -> HTMLResponse:
    """A part of a page, which htmx puts where it belongs."""
    known = {"session": session, "nonce": request.state.nonce, "trace_url": parts_of(request).trace_url}
    return HTMLResponse(rendered(template, **known, **data))


def problem(request: Request, session: PersonSession | None, status: int, title: str, says: str) -> HTMLResponse:
    """A page that says why there is no other one."""
    return page(request, "problem.html", session, status, title=title, says=says)


def signed_in(handler: Page, *, by_itself: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """A page for who is signed in; others are led to the sign-in. `by_itself`: the page asks it, not the person."""

    async def handle(request: Request) -> Response:
        parts = parts_of(request)
        session = parts.sessions.find(request.cookies.get(parts.cookie), is_used=not by_itself)
        if session is None:
            return _to_sign_in(request, ended=parts.cookie in request.cookies)
        try:
            return await handler(request, session)
        except FormTooLarge:
            return problem(request, session, 413, "Too large", "This form is larger than any that a page here sends.")
        except Unauthorized:
            parts.sessions.end(session)
            return _to_sign_in(request, ended=True)
        except ApiError as error:
            return _refused(request, session, error)

    return handle


async def form_of(request: Request, session: PersonSession) -> Form | None:
    """What a page of this session sent; None where it is none of this session's."""
    try:
        text = (await form_body(request)).decode()
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        return None
    given = found.get("csrf", [""])[0]
    return found if secrets.compare_digest(given.encode(), session.csrf.encode()) else None


def one(form: Form, name: str) -> str:
    """A field's text; empty where it is not there."""
    found = form.get(name)
    return found[0] if found else ""


def not_of_this_session(request: Request, session: PersonSession) -> HTMLResponse:
    """The answer to a form that an earlier session's page sent, or no page."""
    says = "This page is of an earlier session. Nothing was sent: look at it again, then press."
    return problem(request, session, 403, "Nothing was sent", says)


def quoted(name: str) -> str:
    """A name as a part of a path of the API: it can be nothing else there."""
    return quote(name, safe=":")


def led(to: str) -> RedirectResponse:
    """To another page, by GET."""
    return RedirectResponse(to, 303)


def _to_sign_in(request: Request, *, ended: bool) -> Response:
    target = request.url.path if request.method == "GET" else ""
    where = "/sign-in" + (f"?next={quote(target)}" if target not in ("", "/") else "")
    where += ("&" if "?" in where else "?") + "ended=1" if ended else ""
    if request.headers.get("hx-request"):
        return part(request, "_ended.html", None) if target.endswith("/news") else Response(status_code=204)
    return led(where)


def _refused(request: Request, session: PersonSession, error: ApiError) -> Response:
    match error:
        case ResourceNotFound():
            status, title = 404, "Not here"
        case Unreachable():
            status, title = 503, "The gateway does not answer"
        case _:
            status, title = 403 if error.code == "missing_role" else 502, "Refused"
    if request.headers.get("hx-request"):
        return Response(status_code=204)
    return problem(request, session, status, title, error.message)
