"""A late success gets its amendment wherever the auditor is killed, and none where the mark does not wait."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.proofs import RawRecord
from aetheris.proofs.evidence import judge
from aetheris.proofs.seals import sign
from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.tables.rules_orders import RulesOrders
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.records import UNSIGNED
from aetheris.verifier import handlers
from aetheris.verifier.core.amendments import LateJobs, LateJudgement, judged_late
from aetheris.verifier.core.job_metrics import JobMeasures
from aetheris.verifier.core.partition import raw
from aetheris.verifier.handlers import VerifierPartition
from tests.testkit.evidence import KEY, TRUSTED, sealed
from tests.testkit.proof_histories import Log

PATIENCE_S = 30
MOST_KILLS = 12


def given_up() -> tuple[list[Record], int]:
    """A sealed job whose call is said to have failed, and then says that it succeeded; and where it says so."""
    log = Log()
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    sealed(log)
    late = len(log.records)
    log.finish("n1", via="late")
    return [
        placed(Draft(Topic.JOBS_EVENTS, one.key or b"", one.value, one.headers), at)
        for at, one in enumerate(log.records)
    ], late


def placed(one: Draft, offset: int) -> Record:
    return Record(one.topic, 0, offset, 0, one.key, one.headers, one.value)


class AuditedLog:
    """Both topics, which outlive their auditors; the one that writes is killed at a write, before or behind it."""

    def __init__(self) -> None:
        self.events, self.mark = given_up()
        self.lines: list[Draft] = []
        self.writes = 0
        self.kill_at: tuple[int, bool] | None = None
        self.dead = asyncio.Event()

    async def write(self, groups: Sequence[Group]) -> None:
        for group in groups:
            at, self.writes = self.writes, self.writes + 1
            if self.kill_at == (at, False):
                await self.die()
            for one in group:
                if one.topic == Topic.JOBS_SEALS:
                    self.lines.append(one)
                else:
                    self.events.append(placed(one, len(self.events)))
            if self.kill_at == (at, True):
                await self.die()

    async def die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()

    @property
    def raw(self) -> list[RawRecord]:
        return [raw(record) for record in self.events]

    def amended(self) -> bool:
        return judge(self.raw, TRUSTED, {}.__getitem__).report.amended is not None

    async def late(self, _job: str, offset: int, **_: object) -> LateJudgement:
        known = [one for one in self.raw if one.offset <= max(offset, len(self.events))]
        return judged_late(known, TRUSTED, {}.__getitem__)

    async def audit(self) -> None:
        """One auditor's life: from the mark of the one before, until nothing is due or he is killed."""
        self.dead.clear()
        made = auditor(self)
        core = made._core  # pyright: ignore[reportPrivateUsage]
        made.begin(0)
        made.fold(self.events[self.mark :])
        core.restored()
        dying = asyncio.create_task(self.dead.wait())
        while (job := core.late.next_due(float("inf"))) is not None and not self.dead.is_set():
            core.late.look_at(job, 0.0)
            made._amendments.hurry()  # pyright: ignore[reportPrivateUsage]
            looking = made._amendments._looking  # pyright: ignore[reportPrivateUsage]
            assert looking is not None
            await asyncio.wait({looking, dying}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
            self.mark = min((offset for _, offset in made.live()), default=len(self.events))
        dying.cancel()
        await made.close()


def auditor(log: AuditedLog) -> VerifierPartition:
    async def nothing(*_: object, **__: object) -> None:
        return

    def ignored(*_: object, **__: object) -> None:
        return

    runtime = SimpleNamespace(
        blobs=None,
        clock=SystemClock(),
        metrics=SimpleNamespace(count=ignored, flush=nothing),
        telemetry=SimpleNamespace(traceparent=ignored),
        appender=log,
        withheld=SimpleNamespace(append=log.write),
    )
    keys = SimpleNamespace(trusted=TRUSTED, is_elsewhere=False, sign=lambda payload: sign(cast("Any", payload), KEY))
    rules = SimpleNamespace(orders=RulesOrders())
    deps = SimpleNamespace(runtime=runtime, worker=None, keys=keys, records=UNSIGNED, proofs=log, rules=rules)
    deps.logged, deps.interim_seal_s, deps.measures = None, 3600.0, JobMeasures()
    return VerifierPartition(cast("Any", deps), 0)


@pytest.fixture(autouse=True)
def into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write_all(appender: AuditedLog, groups: Sequence[Group]) -> list[object]:
        await appender.write(groups)
        return []

    monkeypatch.setattr(handlers, "write_all", write_all)


async def lives(kill_at: tuple[int, bool] | None) -> AuditedLog:
    """Two auditors, of whom the first may be killed."""
    log = AuditedLog()
    log.kill_at = kill_at
    async with asyncio.timeout(PATIENCE_S):
        await log.audit()
        log.kill_at = None
        await log.audit()
    return log


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("write", range(MOST_KILLS))
async def test_a_late_success_is_amended_wherever_the_auditor_is_killed(write: int, behind: bool) -> None:
    log = await lives((write, behind))
    report = judge(log.raw, TRUSTED, {}.__getitem__).report
    assert report.amended is not None
    assert (report.seal.ok, report.amended.ok) == (True, True)
    assert "truth_differs" in {one.rule for one in report.amended.shows}
    assert {one.value for one in log.lines} >= {log.events[report.seal.at].value}


async def test_kills_are_tried_at_every_write() -> None:
    assert 2 <= (await lives(None)).writes <= MOST_KILLS


async def test_without_a_mark_that_waits_who_comes_next_amends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LateJobs, "held", lambda _self: iter(()))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    log = await lives((0, False))
    assert not log.amended()
