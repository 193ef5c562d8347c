"""The verifier's HTTP: proofs, streams and bundles of single jobs, and the log of seals (docs/http-api.md).

It answers the gateway alone, which says whom it asks for: another tenant's job is no job.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from aetheris.http_server.internal import InternalKey, NotInternal
from aetheris.proofs.call_proof import MAX_NAMES, AskedCall
from aetheris.proofs.evidence import BadEvidence
from aetheris.proofs.redacted_records import BadRedaction, Redaction
from aetheris.proofs.sealed_leaves import BadRecordProof
from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, BlobsUnreachable
from aetheris.runtime.log.interface import ArchiveUnusable, LogError
from aetheris.verifier.proofs import Proofs, StillReading, UnknownJob
from aetheris.verifier.seallog import NotLogged, SealLogForked
from aetheris.verifier.token_key import KeyAway
from aetheris.verifier.wire import record_json

MAX_ENTRIES = 10_000


def api(proofs: Proofs, key: InternalKey, clock: Clock) -> FastAPI:
    """The ASGI app."""
    app = FastAPI(title="Aetheris verifier", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.key, app.state.clock = key, clock
    _answer_errors(app)
    _jobs(app, proofs)
    _seals(app, proofs)
    return app


async def _tenant(request: Request, authorization: Annotated[str | None, Header()] = None) -> str:
    key: InternalKey = request.app.state.key
    clock: Clock = request.app.state.clock
    return key.tenant(authorization, request.scope["path"], clock.now())


Tenant = Annotated[str, Depends(_tenant)]
"""Whom the gateway asks for; first among a route's parameters."""


def _jobs(app: FastAPI, proofs: Proofs) -> None:
    @app.get("/jobs/{job_id}/verify")
    async def verify(whose: Tenant, job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(await proofs.verify(job_id, whose))

    @app.get("/jobs/{job_id}/stream")
    async def stream(whose: Tenant, job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        records = await proofs.stream(job_id, whose)
        keys = [key.to_json() for key in proofs.keys.trusted]
        return JSONResponse({"job_id": job_id, "keys": keys, "records": [record_json(record) for record in records]})

    @app.get("/jobs/{job_id}/evidence")
    async def evidence(whose: Tenant, job_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(await proofs.evidence(job_id, whose), media_type="application/zip")

    @app.get("/jobs/{job_id}/redacted-evidence")
    async def redacted(  # pyright: ignore[reportUnusedFunction]
        whose: Tenant,
        job_id: str,
        audience: Annotated[str, Query(alias="for")] = "",
        redact: Annotated[list[str] | None, Query(max_length=MAX_NAMES)] = None,
    ) -> Response:
        found = await proofs.redacted(job_id, whose, Redaction.of(redact or (), audience))
        return Response(found, media_type="application/zip")

    @app.get("/jobs/{job_id}/call-proof")
    async def call(  # pyright: ignore[reportUnusedFunction]
        whose: Tenant,
        job_id: str,
        external_id: str,
        disclose: Annotated[list[str] | None, Query(max_length=MAX_NAMES)] = None,
        step: str | None = None,
    ) -> Response:
        asked = AskedCall(external_id, tuple(disclose or ()), step)
        return Response(await proofs.call(job_id, whose, asked), media_type="application/vnd.aetheris.call-proof+json")

    @app.get("/jobs/{job_id}/inclusion")
    async def inclusion(whose: Tenant, job_id: str) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(await proofs.inclusion(job_id, whose))

    @app.get("/jobs/{job_id}/interim-seals")
    async def interim(whose: Tenant, job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return _lines(await proofs.seals.interim(whose, job_id))


def _seals(app: FastAPI, proofs: Proofs) -> None:
    asked = [Depends(_tenant)]

    @app.get("/seals/checkpoint", dependencies=asked)
    async def checkpoint() -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse((await proofs.seals.checkpoint()).note)

    @app.get("/seals/consistency", dependencies=asked)
    async def consistency(old: Annotated[int, Query(ge=0)]) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(await proofs.seals.consistency(old))

    @app.get("/seals/answers/{receipt}", dependencies=asked)
    async def answers(  # pyright: ignore[reportUnusedFunction]
        receipt: Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
    ) -> JSONResponse:
        return _lines(await proofs.seals.answers(receipt))

    @app.get("/seals/erasures/{pseudonym}", dependencies=asked)
    async def erasures(  # pyright: ignore[reportUnusedFunction]
        pseudonym: Annotated[str, Path(pattern="^[0-9a-f]{32}$")],
    ) -> JSONResponse:
        return _lines(await proofs.seals.erasures(pseudonym))

    @app.get("/seals/entries", dependencies=asked)
    async def entries(  # pyright: ignore[reportUnusedFunction]
        start: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = MAX_ENTRIES
    ) -> JSONResponse:
        found = await proofs.seals.entries(start, limit)
        return JSONResponse({"start": start, "entries": [entry.hex() for entry in found]})


def _lines(found: Sequence[tuple[str, str]]) -> JSONResponse:
    return JSONResponse({"lines": [{"line": line, "proof": proof} for line, proof in found]})


def _answer_errors(app: FastAPI) -> None:
    def answer(kind: type[Exception], status: int, code: Callable[[Any], str]) -> None:
        async def respond(_request: Request, error: Exception) -> Response:
            headers = {"Retry-After": "1"} if status == 503 else None
            body = {"error": {"code": code(error), "message": str(error), "details": {}}}
            return JSONResponse(body, status, headers)

        handler: Callable[[Request, Exception], Awaitable[Response]] = respond
        app.add_exception_handler(kind, handler)

    answer(NotInternal, 401, lambda _error: "unauthorized")
    answer(UnknownJob, 404, lambda error: error.code)
    answer(NotLogged, 404, lambda error: error.code)
    answer(BadEvidence, 409, lambda error: error.rule if error.rule == "not_sealed" else "stream_broken")
    answer(BadRedaction, 400, lambda error: error.code)
    answer(BadRecordProof, 409, lambda error: error.rule)
    for missing in (BlobMissing, BlobCorrupt):
        answer(missing, 409, lambda error: error.code)
    for unavailable in (StillReading, SealLogForked, BlobsUnreachable, KeyAway, ArchiveUnusable):
        answer(unavailable, 503, lambda error: error.code)
    answer(LogError, 503, lambda _error: "event_store_unreachable")
