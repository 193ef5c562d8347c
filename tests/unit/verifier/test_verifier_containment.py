"""What the verifier fails to judge concerns its job alone, wherever it fails: in a round, at the seal, or late."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.proofs import Violation
from aetheris.proofs.audit import violations_in
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event, JobFailed
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.records import UNSIGNED
from aetheris.runtime.telemetry.metrics import Metric
from aetheris.verifier import audit_watch, handlers, reports
from aetheris.verifier.audit_watch import AuditWatch
from aetheris.verifier.core.amendments import LateJudgement
from aetheris.verifier.core.job_metrics import JobMeasures
from aetheris.verifier.core.partition import AuditedJob, Partition
from aetheris.verifier.handlers import VerifierPartition
from tests.testkit.histories import created, finished, graph, planned

BAD, GOOD = "job-bad", "job-good"
PATIENCE_S = 30
ODD = (created(), planned(graph({"id": "a"})), finished("a", "n1"))
"""A success of what never started."""


def records(*events: Event) -> list[Record]:
    """The same of both jobs, the bad one first."""
    found: list[Record] = []
    for event in events:
        for job_id in (BAD, GOOD):
            said = event.model_copy(update={"job_id": job_id})
            made = draft(
                Topic.JOBS_EVENTS, said, key=job_id, id=f"{len(found)}", source="s", time="2026-01-01T00:00:00Z"
            )
            found.append(Record(made.topic, 0, len(found), 0, made.key, made.headers, made.value))
    return found


def taken(partition: Partition, *events: Event) -> None:
    for record in records(*events):
        partition.evolve(record, (record.header("ce_type") or b"").decode().split(".")[2])


async def test_a_job_that_a_round_fails_to_judge_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(facts: Any) -> tuple[Violation, ...]:
        if facts[0].job == BAD:
            raise RecursionError
        return violations_in(facts)

    partition, told, both = Partition(), dict[str, set[str]](), asyncio.Event()

    async def report(job: AuditedJob, broken: Iterable[Violation]) -> None:
        told[job.job_id] = {one.rule for one in broken}
        if told.keys() == {BAD, GOOD}:
            both.set()

    monkeypatch.setattr(audit_watch, "violations_in", judged)
    taken(partition, *ODD)
    watch = AuditWatch(partition, report, SystemClock())
    watch.hurry()
    async with asyncio.timeout(PATIENCE_S):
        await both.wait()
    await watch.close()
    assert "success_without_valid_start" in told[GOOD]
    assert [(one.job_id, type(one.error)) for one in partition.unjudged.take()] == [(BAD, RecursionError)]


def verifier(**parts: Any) -> VerifierPartition:
    """Of what it needs to judge and to seal: what is made of it lies in `appended`."""
    keys = SimpleNamespace(trusted=(), is_elsewhere=False, sign=lambda payload: {**payload, "key_id": "k"})
    runtime = SimpleNamespace(blobs=None, clock=SystemClock(), metrics=Metrics())
    deps = SimpleNamespace(
        **{
            "runtime": runtime,
            "worker": None,
            "keys": keys,
            "records": UNSIGNED,
            "proofs": None,
            "rules": SimpleNamespace(orders=RulesOrders()),
        }
        | parts
    )
    deps.logged, deps.interim_seal_s, deps.measures = None, 3600.0, JobMeasures()
    return VerifierPartition(cast("Any", deps), 0)


class Metrics:
    """What was counted."""

    def __init__(self) -> None:
        self.counted: list[object] = []

    def count(self, metric: object, *_: object, **__: object) -> None:
        self.counted.append(metric)


async def test_a_job_whose_seal_fails_is_not_sealed_and_the_next_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def reported(audit: Any, *more: Any) -> Any:
        if audit.history.facts[0].job == BAD:
            raise RecursionError
        return report_on(audit, *more)

    report_on = reports.report_on
    monkeypatch.setattr(handlers, "report_on", reported)
    monkeypatch.setattr(handlers, "sealed", lambda job, *_: job.job_id)  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    made = verifier()
    core = made._core  # pyright: ignore[reportPrivateUsage]
    taken(core, *ODD[:2], JobFailed(job_id="x", error="e"))
    ready = core.to_seal()
    assert [job.job_id for job in ready] == [BAD, GOOD]
    seals = [await made._sealed(job) for job in ready]  # pyright: ignore[reportPrivateUsage]
    assert seals == [None, GOOD]
    assert core.to_seal() == []
    assert (core.jobs[BAD].needs_upgrade, core.jobs[GOOD].needs_upgrade) == (True, False)


def look(found: Callable[[], LateJudgement | None]) -> SimpleNamespace:
    """A look at what came behind a seal, that ends so."""

    async def late(*_: object, **__: object) -> LateJudgement | None:
        return found()

    return SimpleNamespace(late=late)


async def looked(made: VerifierPartition) -> None:
    """All looks that are due are over."""
    watch = made._amendments  # pyright: ignore[reportPrivateUsage]
    watch.hurry()
    task = watch._looking  # pyright: ignore[reportPrivateUsage]
    assert task is not None
    async with asyncio.timeout(PATIENCE_S):
        await task


async def test_a_sealed_job_that_it_fails_to_judge_again_is_told_and_held() -> None:
    """A call ended behind the seal: nobody waits for the look at it, so what it ended with must not be lost."""

    def failed() -> None:
        raise RecursionError

    made = verifier(proofs=look(failed))
    core = made._core  # pyright: ignore[reportPrivateUsage]
    taken(core, finished("a", "n1"))
    await looked(made)
    metrics = cast("Metrics", made._deps.runtime.metrics)  # pyright: ignore[reportPrivateUsage]
    assert metrics.counted == [Metric.UNJUDGED] * 2
    assert sorted(core.live()) == [(BAD, 0), (GOOD, 1)]
    assert core.late.next_s() is None, "a version that can judge it looks again"


async def test_what_comes_behind_a_seal_is_told_once_however_much_comes() -> None:
    """Each that comes late has the whole stream judged, which holds the others already."""
    late = [record for record in records(finished("a", "n1"), finished("a", "n2")) if record.key == BAD.encode()]
    found = tuple(Violation(one.offset, "after_seal", f"e{one.offset}", one.offset, "m") for one in late)
    told: list[Violation] = []

    async def report(job: AuditedJob, broken: Iterable[Violation], _: object = None) -> None:
        told.extend(job.untold(broken))
        if told == list(found):  # the second comes while the first is told
            made._core.late.note(BAD, late[1].offset)  # pyright: ignore[reportPrivateUsage]

    made = verifier(proofs=look(lambda: LateJudgement(found, None, None)))
    made._report = report  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    made._core.late.note(BAD, late[0].offset)  # pyright: ignore[reportPrivateUsage]
    await looked(made)
    (job,) = [made._core.late.next_due(float("inf"))]  # pyright: ignore[reportPrivateUsage]
    assert job is not None, "it is looked at again, with what was told of it"
    made._core.late.look_at(job, 0.0)  # pyright: ignore[reportPrivateUsage]
    await looked(made)
    assert told == list(found)
    assert [*made.live()] == []
