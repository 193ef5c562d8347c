"""The verifier's HTTP: proofs and raw streams of single jobs, read from Kafka for each question."""

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from aetheris.proofs import Audit
from aetheris.protocol.commands import JobIndexEntry
from aetheris.protocol.records import Record
from aetheris.streams.history import History
from aetheris.streams.log import LogError
from aetheris.streams.partitioning import partition_of
from aetheris.streams.runtime import Runtime
from aetheris.streams.table import Table
from aetheris.verifier.core import raw
from aetheris.verifier.keys import SealKey
from aetheris.verifier.reports import report_on


@dataclass(frozen=True)
class Proofs:
    """What answers questions: any verifier can answer for any job."""

    runtime: Runtime
    index: Table
    history: History
    key: SealKey
    read_s: float

    async def stream(self, job_id: str) -> list[Record] | None:
        """A job's records, from Kafka; None for a job that was never born.

        Raises:
            LogError: the log can't be read.
        """
        row = self.index.get(job_id)
        if row is None:
            return None
        birth = JobIndexEntry.model_validate_json(row).birth
        partition = partition_of(job_id, self.runtime.settings.partitions)
        return await self.history.read_job(job_id, partition, birth, deadline_s=self.read_s)

    async def verify(self, job_id: str) -> dict[str, Any] | None:
        """The four proofs and what stands beside them."""
        records = await self.stream(job_id)
        if records is None:
            return None
        report = await asyncio.to_thread(self._judge, records)
        return {"job_id": job_id, **report}

    def _judge(self, records: list[Record]) -> dict[str, Any]:
        audit = Audit()
        for record in records:
            audit.add(raw(record))
        return report_on(audit, [self.key.public_key], self.runtime.blobs).to_json()


def api(proofs: Proofs) -> FastAPI:
    """GET /jobs/{job_id}/verify, /jobs/{job_id}/stream."""
    app = FastAPI(title="Aetheris verifier", docs_url=None, redoc_url=None)

    @app.get("/jobs/{job_id}/verify")
    async def verify(job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        try:
            report = await proofs.verify(job_id)
        except LogError:
            return _unreachable()
        return _unknown(job_id) if report is None else JSONResponse(report)

    @app.get("/jobs/{job_id}/stream")
    async def stream(job_id: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        try:
            records = await proofs.stream(job_id)
        except LogError:
            return _unreachable()
        if records is None:
            return _unknown(job_id)
        return JSONResponse(
            {
                "job_id": job_id,
                "public_keys": [proofs.key.public_pem],
                "records": [_json(record) for record in records],
            }
        )

    return app


def _json(record: Record) -> dict[str, Any]:
    """Exact bytes, base64 where they need not be text."""
    return {
        "offset": record.offset,
        "key": _base64(record.key) if record.key is not None else None,
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "value": _base64(record.value),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unknown(job_id: str) -> JSONResponse:
    return _error(404, "unknown_job", f"no job {job_id}")


def _unreachable() -> JSONResponse:
    return _error(503, "event_store_unreachable", "the log can't be read now")


def _error(status: int, code: str, message: str) -> JSONResponse:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": {"code": code, "message": message, "details": {}}}, status, headers)
