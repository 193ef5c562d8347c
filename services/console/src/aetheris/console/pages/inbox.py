"""The inbox: what waits for a person, shown exactly, and answered for exactly what was seen."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.earlier_calls import EarlierCalls, earlier_calls
from aetheris.console.core.exact_json import exactly_read, exactly_written
from aetheris.console.core.form_answers import PREFIX, FieldRefused, answers_of, inputs_of
from aetheris.console.core.passkey_answers import (
    PasskeyRefused,
    challenge_of,
    own_passkeys,
    signature_by_one,
    text_to_sign,
)
from aetheris.console.core.request_context import BEARING, request_context
from aetheris.console.core.shown_requests import ShownRequest
from aetheris.console.core.step_rows import shown_rows, step_rows
from aetheris.console.pages.edge import (
    Form,
    form_of,
    led,
    not_of_this_session,
    one,
    page,
    part,
    parts_of,
    quoted,
    signed_in,
)
from aetheris.console.pages.open_requests import listed_requests, read_request
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Action, ApprovalPage, Job
from aetheris.sdk.client import ApiError, Unauthorized

_ACTIONS: Mapping[str, Action] = {"approve": "approve", "reject": "reject", "edit": "edit", "answer": "approve"}
"""The button → the word of the API: a form of the plan is answered by its yes."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """A request's page: who looks, at what, beside what else waits."""

    request: Request
    session: PersonSession
    listed: ApprovalPage
    shown: ShownRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What somebody pressed, with what he filled in."""

    action: str
    comment: str
    form: Form


async def _inbox(request: Request, session: PersonSession) -> Response:
    """The list; the first request is not opened by itself, since opening is looking."""
    listed = await listed_requests(request, session)
    return page(request, "inbox.html", session, listed=listed, shown=None, chosen="")


async def _list(request: Request, session: PersonSession) -> Response:
    chosen = request.query_params.get("at", "")
    return part(request, "_list.html", session, listed=await listed_requests(request, session), chosen=chosen)


async def _request(request: Request, session: PersonSession) -> Response:
    return _page_of(await _looked(request, session))


async def _news(request: Request, session: PersonSession) -> Response:
    """Whether it is still as it was seen: nothing, or what has become of it."""
    shown = await read_request(request, session, request.path_params["request_id"])
    if shown.seen == request.query_params.get("seen"):
        return Response(status_code=204)
    return part(request, "_changed.html", session, shown=shown)


async def _context(request: Request, session: PersonSession) -> Response:
    """What the job did, and what else bears on the request; asked for by the page once that is there."""
    gateway = parts_of(request).gateway
    shown = await read_request(request, session, request.path_params["request_id"])
    job_id = shown.asked.job_id
    may_read = session.may("read", "read_payloads")
    may_see = session.may("read_payloads")
    found: dict[str, Any] = {"job": None, "context": None, "refused": ""}
    try:
        if may_read:
            found["job"] = Job.model_validate_json(await gateway.get(session.token, f"/jobs/{job_id}"))
        if may_see:
            events = exactly_read(await gateway.get(session.token, f"/jobs/{job_id}/events", {"type": BEARING}))
            found["context"] = request_context(shown.id, shown.asked.node_id, shown.arguments, events)
    except Unauthorized:
        raise
    except ApiError as error:
        found["refused"] = error.message
    rows = shown_rows(step_rows(found["job"].steps)) if found.get("job") else ()
    return part(request, "_context.html", session, shown=shown, may_read=may_read, may_see=may_see, rows=rows, **found)


async def _earlier(request: Request, session: PersonSession) -> Response:
    """What was done before: asked for by the page too, since it is looked up among the tenant's newest effects."""
    shown = await read_request(request, session, request.path_params["request_id"])
    found: dict[str, Any] = {"earlier": None, "looked_at": 0, "refused": ""}
    try:
        if session.may("read_payloads") and not shown.is_form:
            effects = await _newest_effects(request, session)
            found |= {"earlier": await _bearing(request, session, shown, effects), "looked_at": len(effects)}
    except Unauthorized:
        raise
    except ApiError as error:
        found["refused"] = error.message
    return part(request, "_earlier.html", session, shown=shown, **found)


async def _bearing(
    request: Request, session: PersonSession, shown: ShownRequest, effects: Sequence[Mapping[str, Any]]
) -> EarlierCalls:
    path = f"/jobs/{quoted(shown.asked.job_id)}/events"
    born: Any = exactly_read(await parts_of(request).gateway.get(session.token, path, {"limit": 1}))
    birth: Any = born[0].get("data") if born else None
    return earlier_calls(
        effects,
        job_id=shown.asked.job_id,
        tool=str(shown.context.get("tool", "")),
        arguments=shown.arguments,
        session=str(birth.get("session") or "") if isinstance(birth, dict) else "",
    )


async def _newest_effects(request: Request, session: PersonSession) -> Sequence[Mapping[str, Any]]:
    """The tenant's, with their reasons, as many as the gateway tells of at a time."""
    answer: Any = exactly_read(await parts_of(request).gateway.get(session.token, "/effects"))
    found: Any = answer.get("effects") if isinstance(answer, dict) else None
    return cast("Sequence[Mapping[str, Any]]", found or ())


async def _answer(request: Request, session: PersonSession) -> Response:
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    said = _Said(action=one(form, "action"), comment=one(form, "comment").strip(), form=form)
    looked = await _looked(request, session)
    shown = looked.shown
    if said.action not in {*_ACTIONS, "preview"}:
        return _page_of(looked, said, refused="No such answer.", status=400)
    if shown.seen != one(form, "seen"):
        return _page_of(looked, said, changed=True, status=409)
    if said.action in ("approve", "edit", "preview") and not shown.is_bound:
        refused = "What is shown are not the arguments that this request is about: nothing was sent."
        return _page_of(looked, said, refused=refused, status=409)
    try:
        data = _data(shown, said)
    except FieldRefused as error:
        return _page_of(looked, said, refused=str(error), field=error.field, status=400)
    if said.action == "preview":
        return _preview(looked, said, data)
    return await _sent(looked, said, data)


def _data(shown: ShownRequest, said: _Said) -> dict[str, Any]:
    """What goes with the word: changed arguments, or a form's answers. Raises FieldRefused."""
    if said.action in ("edit", "preview"):
        return answers_of(shown.fields, said.form, changes=True)
    return answers_of(shown.fields, said.form, changes=False) if said.action == "answer" else {}


def _preview(looked: _Looked, said: _Said, data: dict[str, Any]) -> Response:
    """What an edit changes, before it is sent."""
    shown = looked.shown
    if not data:
        refused = "Nothing was changed: approve it, or change a field."
        return _page_of(looked, said, refused=refused, status=400)
    kept = [(name, text) for name, texts in said.form.items() if name.startswith(PREFIX) for text in texts]
    changes = [(name, shown.arguments.get(name), value, name in shown.arguments) for name, value in data.items()]
    unchanged = len([name for name in shown.arguments if name not in data])
    return page(
        looked.request,
        "edit_preview.html",
        looked.session,
        shown=shown,
        chosen=shown.id,
        changes=changes,
        unchanged=unchanged,
        kept=kept,
        comment=said.comment,
    )


async def _sent(looked: _Looked, said: _Said, data: dict[str, Any]) -> Response:
    request, session, shown = looked.request, looked.session, looked.shown
    body: dict[str, Any] = {"request_id": shown.id, "action": _ACTIONS[said.action]}
    body |= {"data": data} if data else {}
    body |= {"comment": said.comment} if said.comment else {}
    try:
        body |= _signature(looked, said, body["action"])
        answer = await parts_of(request).gateway.post(session.token, "/ecs/respond", exactly_written(body))
    except Unauthorized:
        raise
    except PasskeyRefused as refused:
        return _page_of(looked, said, refused=str(refused), status=400)
    except ApiError as error:
        now = await read_request(request, session, shown.id)
        refused, changed = error.message, now.seen != shown.seen
        refused = refused if error.field is None else f"{error.field}: {refused}"
        return _page_of(replace(looked, shown=now), said, refused=refused, changed=changed, status=409)
    next_id = answer.get("next_request_id")
    if next_id:
        return led(f"/inbox/{next_id}?edited=1")
    return led(f"/inbox/{shown.id}" + ("" if answer.get("event") else "?taken=1"))


def _signature(looked: _Looked, said: _Said, action: Action) -> dict[str, Any]:
    """What goes with a word that its rule wants signed; raises PasskeyRefused."""
    if looked.shown.asked.to_sign is None:
        return {}
    try:
        found: Any = json.loads(one(said.form, "assertion"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PasskeyRefused("the rule asks for a signature, and nothing was signed: nothing was sent")
    keys = own_passkeys(looked.shown, str(looked.request.url.hostname))
    response = cast("dict[str, Any]", found)
    return {"signature": signature_by_one(response, text_to_sign(looked.shown, action), keys)}


def _signs(looked: _Looked) -> tuple[dict[str, str], str]:
    """(the challenge of each answer, by its button; the text of a yes), where a passkey can sign them."""
    shown = looked.shown
    if not shown.is_open or not own_passkeys(shown, str(looked.request.url.hostname)):
        return {}, ""
    actions: tuple[Action, ...] = ("approve", "reject")
    try:
        texts = {action: text_to_sign(shown, action) for action in actions}
    except PasskeyRefused:
        return {}, ""
    challenges = {action: urlsafe_b64encode(challenge_of(text)).decode() for action, text in texts.items()}
    return challenges, texts["approve"].decode()


def _page_of(
    looked: _Looked,
    said: _Said | None = None,
    *,
    refused: str = "",
    changed: bool = False,
    field: str = "",
    status: int = 200,
) -> Response:
    request, shown = looked.request, looked.shown
    signs, signed_text = _signs(looked)
    return page(
        request,
        "inbox.html",
        looked.session,
        status,
        listed=looked.listed,
        shown=shown,
        chosen=shown.id,
        inputs=inputs_of(shown.fields, said.form if said is not None and said.action != "approve" else None),
        signs=signs,
        signed_text=signed_text,
        editing=said is not None and said.action in ("edit", "preview"),
        comment=said.comment if said is not None else "",
        refused=refused,
        changed=changed,
        wrong_field=field,
        was_edited="edited" in request.query_params,
        was_taken="taken" in request.query_params,
    )


async def _looked(request: Request, session: PersonSession) -> _Looked:
    shown = read_request(request, session, request.path_params["request_id"])
    return _Looked(request, session, *await asyncio.gather(listed_requests(request, session), shown))


ROUTES = [
    Route("/inbox", signed_in(_inbox)),
    Route("/inbox/list", signed_in(_list, by_itself=True)),
    Route("/inbox/{request_id}", signed_in(_request)),
    Route("/inbox/{request_id}", signed_in(_answer), methods=["POST"]),
    Route("/inbox/{request_id}/news", signed_in(_news, by_itself=True)),
    Route("/inbox/{request_id}/context", signed_in(_context)),
    Route("/inbox/{request_id}/earlier", signed_in(_earlier)),
]
