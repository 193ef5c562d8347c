"""Jobs, searched."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aetheris.gateway.core.job_searches import JobSearch
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.routes.edge import RouteServices, Who, number, time_of
from aetheris.gateway.routes.jobs import label_of, listed_status
from aetheris.protocol import api

_LONGEST = 300

router = APIRouter(prefix="/api/search", tags=["jobs"])


@router.get("", response_model=api.JobPage)
async def search(
    *,
    caller: Who,
    deps: RouteServices,
    q: str | None = None,
    job_id: str | None = None,
    external_id: str | None = None,
    tool: str | None = None,
    argument: str | None = None,
    agent: str | None = None,
    label: str | None = None,
    status: str | None = None,
    error: str | None = None,
    since: str | None = None,
    until: str | None = None,
    cursor: str | None = None,
    limit: str = "50",
) -> JSONResponse:
    """Jobs of the lists for which all of it holds, newest first; words and arguments as far as the caller reads."""
    wanted = JobSearch(
        words=_text("q", q),
        job_id=_text("job_id", job_id),
        external_id=_text("external_id", external_id),
        tool=_text("tool", tool),
        argument=_argument(argument),
        agent=_text("agent", agent),
        label=label_of(label),
        status=listed_status(status),
        error=_text("error", error),
        since=time_of("since", since),
        until=time_of("until", until),
    )
    return JSONResponse(await deps.search.found(caller, wanted, cursor, number("limit", limit, 1, 200)))


def _text(field: str, text: str | None) -> str | None:
    """Not empty, or it would look like an answer to another question; and not too long."""
    if text is not None and (not text.strip() or len(text) > _LONGEST):
        raise BadRequestProblem("bad_request", field, f"must have 1 to {_LONGEST} characters")
    return text


def _argument(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    path, equals, value = text.partition("=")
    if not equals or not path or len(text) > _LONGEST:
        raise BadRequestProblem("bad_request", "argument", "must be PATH=VALUE, such as to.name=acc-7")
    return path, value
