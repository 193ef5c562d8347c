"""Sealed jobs of a shop as the archiver writes them, without Kafka: made here, judged and written as ever."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from aetheris.archiver.core.sealed_jobs import SealedJobs
from aetheris.archiver.handlers import SealHandler
from aetheris.archiver.job_records import SealedJobReader
from aetheris.archiver.parquet_store import ParquetStore, store_at
from aetheris.proofs import RawRecord, verify
from aetheris.proofs.seals import seal_payload, sign
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.base.hidden_values import by_meaning
from aetheris.protocol.base.keys import content_key_of_canonical
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.telemetry.metrics import Metrics
from tests.testkit.evidence import KEY, SALT, amend, sealed
from tests.testkit.proof_histories import Log, digest, node, raw, tool

TENANT = "shop"
BORN = datetime(2026, 1, 1, tzinfo=UTC)
TOOLS = {"lookup": tool("pure"), "refund": tool("probeable", irreversible=True)}
BATCH = 500
LATER = "2026-01-03T00:00:00+00:00"
"""When a job of 1 January is amended."""


@dataclass(frozen=True)
class SealLine:
    offset: int
    value: bytes


def shop_job(number: int) -> list[RawRecord]:
    """A job that looks an order up and pays it back, a minute behind the one before; each tenth is refused its refund.

    With its seal. A refund of it has a hidden value among its arguments.
    """
    amount, born = 10 + number % 90, BORN + timedelta(minutes=number)
    hidden = {"$hidden": {"c": f"{number:064x}", "d": f"{number % 7:064x}", "k": f"{number % 7:032x}"}}
    args = {"order": f"o-{number}", "amount": amount, "iban": hidden}
    first, second = node("find", "lookup", args={"order": f"o-{number}"}), node("pay", "refund", "find", args=args)
    name = str(uuid5(NAMESPACE_URL, f"job:{number}"))
    log = Log(first, second, tools=TOOLS, created=False, job=name, tenant=TENANT)
    _planned(log)
    log.start("n1", "find", tool_name="lookup")
    log.finish("n1", name="find", result={"amount": amount})
    log.done("find", "success")
    log.about("policy_allowed", name="pay", args_hash=log.call("pay").args_hash, tool_version="1", rule="refunds")
    found = [{"invocation_id": "n1", "result_hash": log.hashes["find"]}]
    meant = content_key_of_canonical(TENANT, "refund", canonical(by_meaning(args)))
    log.start("n2", "pay", after=found, content_key=meant)
    if number % 10 == 9:
        log.permanent("n2", "executor", "pay", error="declined")
        log.done("pay", "permanent_failure", reason="declined")
        log.add("job_failed", error="declined")
    else:
        log.finish("n2", name="pay", result={"refunded": amount}, external_id=f"re_{number}")
        log.done("pay")
        log.complete()
    records = [_timed(one, born + timedelta(seconds=at)) for at, one in enumerate(log.records)]
    return [*records, _seal(log, records, born + timedelta(seconds=30))]


def _planned(log: Log) -> None:
    log.add("job_created", tenant=TENANT, submitted_by="agent-7", request_hash="r", plan=log.graph)
    by = {"planner": "static", "planner_version": "1"}
    log.add("plan_generated", revision=0, task_graph=log.graph, plan_hash=digest(log.graph), **by)


def _timed(record: RawRecord, at: datetime) -> RawRecord:
    headers = (*record.headers, ("ce_time", at.isoformat().encode()), ("ce_source", b"aetheris/executor"))
    return RawRecord(record.offset, record.key, headers, record.value)


def _seal(log: Log, records: Sequence[RawRecord], at: datetime) -> RawRecord:
    report = verify(records)
    payload = seal_payload(
        tenant=log.tenant,
        job_id=log.job,
        event_count=len(records),
        root=report.event_chain_root_hash,
        tree=report.event_tree_root_hash,
        execution_hash=report.execution_hash,
        outcome_hash=report.outcome_hash,
        sealed_at=at.isoformat(),
        salt=SALT,
        calls=report.calls,
    )
    return raw(10 * len(records), "seal", "job_sealed", sign(payload, KEY), ce_subject=log.job)


class MadeJobs:
    """In the place of log and archive; a job is held from its seal's line until it is read."""

    def __init__(self) -> None:
        self._held: dict[str, list[Record]] = {}

    def lines(self, begin: int, end: int) -> Iterator[SealLine]:
        for number in range(begin, end):
            *records, seal = shop_job(number)
            job_id = (seal.key or b"").decode()
            self._held[job_id] = [record_of(one) for one in (*records, seal)]
            yield SealLine(number, seal.value)

    async def of(self, job_id: str, at_least: int = 0) -> Sequence[Record]:
        found = self._held.pop(job_id)
        assert len(found) >= at_least
        return found


def record_of(one: RawRecord) -> Record:
    return Record(Topic.JOBS_EVENTS, 0, one.offset, 0, one.key, one.headers, one.value)


class AmendedJob:
    """In the place of log and archive: one job, as its log has it, whose every seal is a line of jobs.seals."""

    def __init__(self, log: Log) -> None:
        self.records = [record_of(one) for one in log.records]
        seals = [one.value for one in log.records if one.header("ce_type").endswith(b"job_sealed.v1")]
        self.lines = [SealLine(number, value) for number, value in enumerate(seals)]

    async def of(self, job_id: str, at_least: int = 0) -> Sequence[Record]:
        assert (job_id, len(self.records) >= at_least) == ((self.records[0].key or b"").decode(), True)
        return self.records


def unsure_then_late() -> Log:
    """A job that failed with a call of which nobody heard any more; behind its seal the call says that it succeeded."""
    log = Log(created=False, tenant=TENANT)
    _planned(log)
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    sealed(log)
    log.add("approval_decided", node_id="a", idempotency_key="k-a", request_id="r", decision="approve", by="the CFO")
    log.finish("n1", via="late", external_id="re_late")
    amend(log, sealed_at=LATER)
    return log


def handler_of(store: Path, jobs: object, *, payloads: bool = True) -> SealHandler:
    """What writes to a store what it is given of jobs."""
    return SealHandler(
        SealedJobs([TrustedKey(KEY.public_key())]),
        cast("SealedJobReader", jobs),
        ParquetStore(store_at(str(store))),
        SystemClock(),
        Metrics("archiver"),
        every_s=0.0,
        payloads=payloads,
    )


async def written(store: Path, jobs: int, *, payloads: bool = True, begin: int = 0) -> None:
    """Put so many jobs into a store."""
    made = MadeJobs()
    handler = handler_of(store, made, payloads=payloads)
    await handler.begin()
    for start in range(begin, jobs, BATCH):
        await handler.came(list(made.lines(start, min(start + BATCH, jobs))))
    await run_until(handler, jobs)


async def run_until(handler: SealHandler, jobs: int) -> None:
    """Let it write so many."""
    stop = asyncio.Event()
    running = asyncio.create_task(handler.run(stop))
    while handler.written < jobs:  # noqa: ASYNC110  it says so to nobody
        await asyncio.sleep(0.05)
    stop.set()
    await running


def facts(store: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table, by pyarrow."""
    import pyarrow.parquet as pq

    return [
        row for path in sorted(store.glob(f"tenants/*/{table}/*/*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
