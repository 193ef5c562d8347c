"""Undoing what agents and tools did: what can be undone, and what can't and why, is shown before anything is."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aetheris.console.core.exact_json import exactly_written
from aetheris.console.pages.edge import (
    Form,
    form_of,
    not_of_this_session,
    one,
    page,
    parts_of,
    problem,
    quoted,
    signed_in,
)
from aetheris.console.sessions import PersonSession
from aetheris.protocol.api import Submitted
from aetheris.protocol.api_operations import UndoJob, UndoPage
from aetheris.sdk.client import ApiError, Unauthorized

AGES: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "2h": timedelta(hours=2),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_JOBS = 50
"""Of a page."""
_ASKED = 20
"""So often the gateway is asked for more, of jobs that may have nothing of what is meant."""
_MOST_SENT = 100


async def _preview(request: Request, session: PersonSession) -> Response:
    """What is meant, and how each effect stands; the time is fixed here, and sent with what is undone."""
    query = request.query_params
    asked = {name: query.get(name, "").strip() for name in ("agent", "tool")}
    age, since = query.get("age", "2h"), query.get("since", "")
    if not any(asked.values()):
        return page(request, "undo.html", session, jobs=None, asked=asked, age=age, since=since, later="")
    if age in AGES and not since:
        since = (datetime.now(UTC) - AGES[age]).isoformat(timespec="seconds")
    given = {**{name: text for name, text in asked.items() if text}, **({"since": since} if since else {})}
    jobs, later = await _meant(request, session, given, query.get("cursor", ""))
    return page(request, "undo.html", session, jobs=jobs, asked=asked, age=age, since=since, later=later)


async def _undo(request: Request, session: PersonSession) -> Response:
    """Undo what was chosen, job by job, and tell what became of each."""
    form = await form_of(request, session)
    if form is None:
        return not_of_this_session(request, session)
    chosen = list(dict.fromkeys(form.get("job", [])))
    if not chosen or len(chosen) > _MOST_SENT:
        says = f"Choose the jobs that you mean, {_MOST_SENT} at most."
        return problem(request, session, 400, "Nothing was sent", says)
    body = exactly_written(_body(form))
    outcomes = [await _one(request, session, job_id, body) for job_id in chosen]
    return page(request, "undone.html", session, outcomes=outcomes)


async def _one(request: Request, session: PersonSession, job_id: str, body: str) -> tuple[str, str, str]:
    """(the job, the one that undoes it, why there is none)."""
    try:
        answer = await parts_of(request).gateway.post(session.token, f"/jobs/{quoted(job_id)}/undo", body)
    except Unauthorized:
        raise
    except ApiError as error:
        return job_id, "", error.message
    return job_id, Submitted.model_validate(answer).job_id, ""


async def _meant(
    request: Request, session: PersonSession, given: Mapping[str, str], cursor: str
) -> tuple[list[UndoJob], str]:
    """Some jobs with effects that are meant, and what leads to the next ones."""
    found: list[UndoJob] = []
    for _ in range(_ASKED):
        params = {**given, **({"cursor": cursor} if cursor else {})}
        answer = UndoPage.model_validate_json(await parts_of(request).gateway.get(session.token, "/undo", params))
        found += answer.jobs
        cursor = answer.cursor or ""
        if not cursor or len(found) >= _JOBS:
            break
    return found, cursor


def _body(form: Form) -> dict[str, Any]:
    return {name: one(form, name) for name in ("tool", "since") if one(form, name)}


ROUTES = [
    Route("/operations/undo", signed_in(_preview)),
    Route("/operations/undo", signed_in(_undo), methods=["POST"]),
]
