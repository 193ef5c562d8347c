"""The verifier's answers, handed on as they are."""

import re
from typing import Annotated

import httpx
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.gateway.routes.edge import RouteServices, Who, also_takes
from aetheris.gateway.verifier_proxy import QueryItems

_HASH = re.compile(r"[0-9a-f]{64}")
_PSEUDONYM = re.compile(r"[0-9a-f]{32}")
_KEPT = ("content-type", "retry-after")
_MOST_FIELDS = 100
"""That are to be disclosed of a call, or left out of a bundle."""

router = APIRouter(prefix="/api", tags=["proofs"])


@router.get("/jobs/{job_id}/verify")
async def verify(caller: Who, deps: RouteServices, job_id: str) -> Response:
    """Whether what the job's log says holds, and how far that is proved."""
    return _relayed(await deps.verifier.proof(caller, job_id, "verify"))


@router.get("/jobs/{job_id}/stream")
async def stream(caller: Who, deps: RouteServices, job_id: str) -> Response:
    """The raw records, also of a job that runs."""
    return _relayed(await deps.verifier.proof(caller, job_id, "stream"))


@router.get("/jobs/{job_id}/evidence", response_class=Response)
async def evidence(
    caller: Who,
    deps: RouteServices,
    job_id: str,
    *,
    audience: Annotated[
        str | None, Query(alias="for", description="auditor: without payloads that no rule needs")
    ] = None,
    redact: Annotated[list[str] | None, Query(max_length=_MOST_FIELDS, description="What is left out")] = None,
) -> Response:
    """The evidence bundle of a sealed job (application/zip); with `for` or `redact` a redacted one."""
    asked: QueryItems = [("redact", one) for one in redact or ()]
    asked += [("for", audience)] if audience is not None else []
    return _relayed(await deps.verifier.proof(caller, job_id, "redacted-evidence" if asked else "evidence", asked))


@router.get("/jobs/{job_id}/call-proof", response_class=Response)
async def call_proof(
    caller: Who,
    deps: RouteServices,
    job_id: str,
    *,
    external_id: str,
    disclose: Annotated[list[str] | None, Query(max_length=_MOST_FIELDS)] = None,
    step: str | None = None,
) -> Response:
    """One call by itself (JSON, signed), with what is to be disclosed of it and no other payload."""
    asked: QueryItems = [("external_id", external_id), *(("disclose", one) for one in disclose or ())]
    asked += [("step", step)] if step is not None else []
    return _relayed(await deps.verifier.proof(caller, job_id, "call-proof", asked))


@router.get("/jobs/{job_id}/inclusion", response_class=Response)
async def inclusion(caller: Who, deps: RouteServices, job_id: str) -> Response:
    """A proof (text) that the job's seal is in the log of seals."""
    return _relayed(await deps.verifier.proof(caller, job_id, "inclusion"))


@router.get("/jobs/{job_id}/interim-seals")
async def interim_seals(caller: Who, deps: RouteServices, job_id: str) -> Response:
    """The newest lines of the log of seals that say how a job stood that is open, each with its proof."""
    return _relayed(await deps.verifier.proof(caller, job_id, "interim-seals"))


@router.get("/seals/answers/{receipt}")
async def answers(request: Request, caller: Who, deps: RouteServices, receipt: str) -> Response:
    """The lines of the log of seals that say what was answered to a receipt, by its hash, each with its proof."""
    if not _HASH.fullmatch(receipt):
        raise BadRequestProblem("bad_request", "receipt", "64 hex digits")
    return _relayed(await deps.verifier.seals(caller, f"answers/{receipt}", request.query_params))


@router.get("/seals/erasures/{pseudonym}")
async def erasures(request: Request, caller: Who, deps: RouteServices, pseudonym: str) -> Response:
    """The lines of the log of seals that say that a person was erased, by its pseudonym, each with its proof."""
    if not _PSEUDONYM.fullmatch(pseudonym):
        raise BadRequestProblem("bad_request", "pseudonym", "32 hex digits")
    return _relayed(await deps.verifier.seals(caller, f"erasures/{pseudonym}", request.query_params))


@router.get("/seals/checkpoint", response_class=Response)
async def checkpoint(request: Request, caller: Who, deps: RouteServices) -> Response:
    """The signed head of the log of seals (text)."""
    return _relayed(await deps.verifier.seals(caller, "checkpoint", request.query_params))


@router.get(
    "/seals/consistency", response_class=Response, openapi_extra=also_takes("query", old="How many leaves were known")
)
async def consistency(request: Request, caller: Who, deps: RouteServices) -> Response:
    """A proof (text) that the log of seals only grew since `old`."""
    return _relayed(await deps.verifier.seals(caller, "consistency", request.query_params))


@router.get("/seals/entries", openapi_extra=also_takes("query", start="The first entry", limit="At most so many"))
async def entries(request: Request, caller: Who, deps: RouteServices) -> Response:
    """The entries of the log of seals, from `start` on: the SHA-256 of each line."""
    return _relayed(await deps.verifier.seals(caller, "entries", request.query_params))


def _relayed(answer: httpx.Response) -> Response:
    headers = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
    if answer.status_code == 422:
        return JSONResponse(BadRequestProblem("bad_request", "query", "not as the verifier takes it").body(), 400)
    return Response(answer.content, answer.status_code, headers)
