"""The verifier's HTTP: proofs, streams and bundles of single jobs, and the log of seals (docs/http-api.md)."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from aetheris.proofs.evidence import BadEvidence
from aetheris.runtime.blobs.store import BlobCorrupt, BlobMissing, BlobsUnreachable
from aetheris.runtime.log.interface import LogError
from aetheris.verifier.proofs import Proofs, StillReading, UnknownJob
from aetheris.verifier.seallog import NotLogged, SealLogForked
from aetheris.verifier.wire import record_json

MAX_LEAVES = 10_000


def api(proofs: Proofs) -> FastAPI:
    """The ASGI app."""
    app = FastAPI(title="Aetheris verifier", docs_url=None, redoc_url=None)
    _answer_errors(app)
    _jobs(app, proofs)
    _seals(app, proofs)
    return app


def _jobs(app: FastAPI, proofs: Proofs) -> None:
    @app.get("/jobs/{job_id}/verify")
    async def verify(job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(await proofs.verify(job_id))

    @app.get("/jobs/{job_id}/stream")
    async def stream(job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        records = await proofs.stream(job_id)
        keys = [key.to_json() for key in proofs.keys.trusted]
        return JSONResponse({"job_id": job_id, "keys": keys, "records": [record_json(record) for record in records]})

    @app.get("/jobs/{job_id}/evidence")
    async def evidence(job_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(await proofs.evidence(job_id), media_type="application/zip")

    @app.get("/jobs/{job_id}/inclusion")
    async def inclusion(job_id: str) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(await proofs.inclusion(job_id))


def _seals(app: FastAPI, proofs: Proofs) -> None:
    @app.get("/seals/checkpoint")
    async def checkpoint() -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse((await proofs.seals.checkpoint()).note)

    @app.get("/seals/consistency")
    async def consistency(old: Annotated[int, Query(ge=0)]) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(await proofs.seals.consistency(old))

    @app.get("/seals/leaves")
    async def leaves(  # pyright: ignore[reportUnusedFunction]
        start: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=MAX_LEAVES)] = MAX_LEAVES
    ) -> JSONResponse:
        found = await proofs.seals.leaves(start, limit)
        return JSONResponse({"start": start, "leaves": [leaf.hex() for leaf in found]})


def _answer_errors(app: FastAPI) -> None:
    def answer(kind: type[Exception], status: int, code: Callable[[Any], str]) -> None:
        async def respond(_request: Request, error: Exception) -> Response:
            headers = {"Retry-After": "1"} if status == 503 else None
            body = {"error": {"code": code(error), "message": str(error), "details": {}}}
            return JSONResponse(body, status, headers)

        handler: Callable[[Request, Exception], Awaitable[Response]] = respond
        app.add_exception_handler(kind, handler)

    answer(UnknownJob, 404, lambda error: error.code)
    answer(NotLogged, 404, lambda error: error.code)
    answer(BadEvidence, 409, lambda error: error.rule if error.rule == "not_sealed" else "stream_broken")
    for missing in (BlobMissing, BlobCorrupt):
        answer(missing, 409, lambda error: error.code)
    for unavailable in (StillReading, SealLogForked, BlobsUnreachable):
        answer(unavailable, 503, lambda error: error.code)
    answer(LogError, 503, lambda _error: "event_store_unreachable")
