"""A stored stream that lost its end: the log of seals knows how long it was. Real Kafka, a real verifier."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded.ports import free_port
from aetheris.http_server.internal import InternalKey
from aetheris.proofs.seals import sign
from aetheris.proofs.trust import write_keys
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.stretches import Stretch
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.runtime.kafka import KafkaLog
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.evidence import KEY, OTHER_KEY, SEALED_AT, TRUSTED
from tests.testkit.proof_histories import TENANT
from tests.testkit.stored_jobs import StoredJob, stored_job

pytestmark = [pytest.mark.nightly, pytest.mark.real]

DEADLINE_S = 60.0


def replaced(job: StoredJob) -> StoredJob:
    """Another history in its place, under its seal."""
    stored = [replace(record, value=record.value.replace(b"n2", b"n9")) for record in job.records[:-1]]
    return replace(job, stored=[*stored, job.records[-1]])


def lies(job_id: str) -> list[bytes]:
    """Lines that no key has signed: they are no word about the job, and break nothing."""
    said = {"job_id": job_id, "event_count": 99, "root": "0" * 64, "sealed_at": SEALED_AT}
    return [b"\xff", json.dumps(said).encode(), json.dumps(sign(said, OTHER_KEY)).encode()]


@dataclass
class SealLog:
    """A log, and the verifier that a test may start on it."""

    log: KafkaLog
    kafka: str
    env: dict[str, str]
    partitions: int

    async def store(self, *jobs: StoredJob, stretches: tuple[Stretch, ...] | None = None) -> None:
        """The whole seal into the log of seals; into the stream what is left; into the index where that lies.

        Or `stretches`, as offsets from the birth.
        """
        appender = self.log.appender()
        await appender.start()
        for one in jobs:
            await appender.append([(Draft(Topic.JOBS_SEALS, one.id.encode(), one.seal),)])
            place = (Topic.JOBS_EVENTS, partition_of(one.id, self.partitions))
            creation_offset = (await self.log.end_offsets([place]))[place]
            drafts = [Draft(Topic.JOBS_EVENTS, one.id.encode(), r.value, r.headers) for r in one.stored]
            await appender.append([(draft,) for draft in drafts])
            row = JobIndexEntry(
                job_id=one.id,
                birth=creation_offset,
                request_hash="r",
                status="completed",
                tenant=TENANT,
                submitted_by="me",
                created_at=SEALED_AT,
                stretches=one.lies_at(creation_offset) if stretches is None else shifted(stretches, creation_offset),
            )
            value = row.model_dump_json().encode()
            await appender.append([(Draft(Topic.JOBS_INDEX, one.id.encode(), value),)])
        await appender.stop()

    async def write_lines(self, job_id: str, *lines: bytes) -> None:
        """Into the log of seals, by who may append there and has no key that seals."""
        appender = self.log.appender()
        await appender.start()
        await appender.append([(Draft(Topic.JOBS_SEALS, job_id.encode(), line),) for line in lines])
        await appender.stop()

    async def from_log(self, job_id: str) -> tuple[int, dict[str, Any]]:
        """`aetheris verify ID --from-log --json`: exit code and report; no service runs."""
        argv = ["verify", job_id, "--from-log", "--json"]
        shown = await asyncio.to_thread(CliRunner().invoke, app, argv, env=self.env)
        return shown.exit_code, json.loads(shown.stdout)

    @asynccontextmanager
    async def verifier(self) -> AsyncGenerator[httpx.AsyncClient]:
        """A verifier process that answers; killed at the end."""
        port = free_port()
        env = os.environ | self.env | {"AETHERIS_HTTP_PORT": str(port)}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "aetheris.verifier", env=env)
        try:
            client = httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False, auth=self._as_gateway
            )
            async with client:
                yield client
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()

    def _as_gateway(self, request: httpx.Request) -> httpx.Request:
        key = InternalKey.load(None, Path(self.env["AETHERIS_DATA"]), dev=True)
        request.headers["authorization"] = key.authorization(TENANT, request.url.path, datetime.now(UTC))
        return request


@pytest.fixture
async def seals(kafka: str, valkey_url: str, tmp_path: Path) -> AsyncGenerator[SealLog]:
    await ensure_topics(kafka, 4)
    keys = tmp_path / "keys"
    keys.mkdir()
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (keys / "seal.pem").write_bytes(pem)
    (keys / "seal-keys.json").write_text(write_keys(TRUSTED))
    log = KafkaLog(kafka)
    await log.start()
    partitions = await log.partitions(Topic.JOBS_EVENTS)
    env = {
        "AETHERIS_KAFKA": kafka,
        "AETHERIS_REDIS": valkey_url,
        "AETHERIS_DATA": str(tmp_path),
        "AETHERIS_DEV": "true",
        "AETHERIS_WORKER_ID": "verifier-under-test",
        "AETHERIS_PARTITIONS": str(partitions),
        "AETHERIS_SEAL_KEY": str(keys / "seal.pem"),
    }
    yield SealLog(log, kafka, env, partitions)
    await log.stop()


def shifted(stretches: tuple[Stretch, ...], by: int) -> tuple[Stretch, ...]:
    return tuple((begin + by, end + by) for begin, end in stretches)


def rules(report: dict[str, Any]) -> list[str]:
    return [broken["rule"] for broken in report["violations"]]


async def answered(client: httpx.AsyncClient, path: str) -> httpx.Response:
    """The answer, once the verifier has read its tables."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                answer = await client.get(path)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code != 503:
                return answer
            await asyncio.sleep(0.1)


async def test_the_log_of_seals_misses_the_end_of_a_stored_stream(seals: SealLog) -> None:
    whole, unsealed, cut, gone, other = (
        stored_job(),
        stored_job(1),
        stored_job(2),
        stored_job(99),
        replaced(stored_job()),
    )
    await seals.write_lines(whole.id, *lies(whole.id))
    await seals.store(whole, unsealed, cut, gone, other)
    await seals.write_lines(whole.id, *lies(whole.id))

    code, report = await seals.from_log(whole.id)
    assert (code, rules(report), report["seal"]["ok"]) == (0, [], True)
    code, report = await seals.from_log(unsealed.id)
    assert (code, rules(report)) == (1, ["records_missing"])
    assert "has no such seal" in report["violations"][0]["message"]
    code, report = await seals.from_log(cut.id)
    assert (code, rules(report)) == (1, ["records_missing"])
    kept = cut.stored[-1].header("ce_id").decode()
    assert {broken["event_id"] for broken in report["violations"]} == {kept}
    code, report = await seals.from_log(gone.id)
    assert (code, rules(report)) == (1, ["job_dropped", "no_history"])
    code, report = await seals.from_log(other.id)
    assert (code, rules(report)[0]) == (1, "other_than_sealed")
    assert (await seals.from_log("tail-never"))[0] == 4

    async with seals.verifier() as client:
        good = (await answered(client, f"/jobs/{whole.id}/verify")).json()
        assert (good["ok"], good["violations"]) == (True, [])
        found = (await answered(client, f"/jobs/{cut.id}/verify")).json()
        assert (found["ok"], rules(found)) == (False, ["records_missing"])
        refused = await answered(client, f"/jobs/{cut.id}/evidence")
        assert refused.status_code == 409
        assert f"event {kept}" in refused.json()["error"]["message"]
        found = (await answered(client, f"/jobs/{other.id}/verify")).json()
        assert (found["ok"], rules(found)[0]) == (False, "other_than_sealed")
        assert (await answered(client, f"/jobs/{whole.id}/evidence")).status_code == 200


@pytest.mark.parametrize(
    "lying",
    [(), ((0, 1),), ((0, 11),), ((0, 2), (4, 12)), ((0, 10**9),), ((3, 12),)],
    ids=["none", "the birth alone", "no seal", "the middle left out", "beyond the log", "no birth"],
)
async def test_an_index_that_lies_about_where_a_job_lies_changes_no_judgement(
    seals: SealLog, lying: tuple[Stretch, ...]
) -> None:
    whole, cut, other = stored_job(), stored_job(2), replaced(stored_job())
    await seals.store(whole, cut, other, stretches=lying)
    async with seals.verifier() as client:
        good = (await answered(client, f"/jobs/{whole.id}/verify")).json()
        assert (good["ok"], good["event_count"]) == (True, len(whole.records) - 1)
        assert (await answered(client, f"/jobs/{whole.id}/evidence")).status_code == 200
        assert len((await answered(client, f"/jobs/{whole.id}/stream")).json()["records"]) == len(whole.records)
        found = (await answered(client, f"/jobs/{cut.id}/verify")).json()
        assert (found["ok"], rules(found)) == (False, ["records_missing"])
        found = (await answered(client, f"/jobs/{other.id}/verify")).json()
        assert (found["ok"], rules(found)[0]) == (False, "other_than_sealed")
