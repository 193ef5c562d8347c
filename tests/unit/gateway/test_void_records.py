"""Records that are not their writers' hide no true one, are shown as what they are, and end no stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.gateway.core import reconciliations
from aetheris.gateway.core.decisions import JobSnapshot
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.end_waits import HEARD, EndWait, EndWaits
from aetheris.gateway.feed import JobFeed
from aetheris.gateway.reads import Reads
from aetheris.gateway.reconciliation import Reconciliation
from aetheris.gateway.views import Row
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.words import TryWord
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.job_log import LoggedEvent, fold_into, logged_events
from aetheris.protocol.fold.job_log import Sequence as Numbers
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.messages.events import Event
from tests.testkit import histories as h
from tests.testkit.tries import try_of, words_of
from tests.unit.runtime.test_record_signatures import (
    At,
    Installation,
    SignedJob,
    by_hand,
    created,
    drafted,
    key_event,
    placed,
    revocation,
)

TRUE_TYPES = ["job_created", "plan_generated"]
START = h.started("a", "n1")
REPORT = h.finished("a", "n1")
ALLOWED = h.about(ev.PolicyAllowed, "a", args_hash="h", tool_version="1", rule="r")
COMPLETED = ev.JobCompleted(job_id="job-1")
SEALED = ev.JobSealed(
    job_id="job-1",
    tenant="t",
    sealed_at="2026-01-01T00:00:00Z",
    event_count=1,
    root="r",
    chain=2,
    tree="t",
    execution_hash="e",
    outcome_hash="o",
    signature="s",
    key_id="k",
)


@pytest.fixture
def job(tmp_path: Path) -> SignedJob:
    return SignedJob(Installation(tmp_path))


def forged(job: SignedJob, event: Event, event_id: str | None = None, version: str = "1") -> None:
    """Appended by who has signed nothing, under an id of his choice."""
    made = drafted(event)
    named = {"ce_type": f"io.aetheris.{event.event_type}.v{version}".encode(), "ce_id": (event_id or "").encode()}
    headers = tuple((name, named.get(name) or value) for name, value in made.headers)
    job.judge(made.replaced(headers=headers), event)


class ReadLog:
    """A job's records, read once; nothing is to come."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = list(records)

    async def row(self, _caller: object, _job_id: str) -> Row:
        return cast("Row", SimpleNamespace(job_id="job-1", first_offset=self._records[0].offset))

    async def end(self, _job_id: str) -> int:
        return self._records[-1].offset + 1

    async def between(self, _job_id: str, start: int, end: int) -> list[Record]:
        return [record for record in self._records if start <= record.offset < end]

    def sealed_line(self, _row: object) -> None:
        return None

    async def records(self, _row: object, _end: int) -> list[Record]:
        return self._records

    @asynccontextmanager
    async def listening(self, _job_id: str) -> AsyncGenerator[None]:
        yield

    async def spliced(self, _row: object, _news: object) -> AsyncIterator[list[Record]]:
        yield self._records


class Anytime:
    """No deadline."""

    @asynccontextmanager
    async def deadline(self) -> AsyncGenerator[None]:
        yield


def reads(job: SignedJob) -> Reads:
    parts = dict.fromkeys(("waits", "feed", "views", "quarantines", "registry", "clock"))
    return Reads(**cast("Any", parts | {"reader": ReadLog(job.records), "deadlines": Anytime()}))


async def shown(job: SignedJob, after: int = 0, limit: int = 100) -> list[tuple[int, str, bool]]:
    found = await reads(job).events(cast("Principal", None), "job-1", after, limit)
    return [(one["seq"], one["type"], one.get("void", False)) for one in found]


async def streamed(job: SignedJob) -> list[LoggedEvent]:
    row = cast("Row", type("Row", (), {"job_id": "job-1"}))
    return [one.logged async for found in reads(job).stream(row, 0) for one in found]


def types(found: Sequence[LoggedEvent]) -> list[str]:
    return [one.type for one in found]


@pytest.mark.parametrize("true", [ALLOWED, COMPLETED], ids=lambda one: one.event_type)
async def test_who_brings_the_id_of_a_true_record_sooner_hides_nothing(job: SignedJob, true: Event) -> None:
    forged(job, true, true.event_type)
    writer = Party.LEDGER if true is ALLOWED else Party.PLANNER
    job.write(writer, true)
    name = true.event_type
    assert await shown(job) == [
        (1, "job_created", False),
        (2, "plan_generated", False),
        (3, name, True),
        (4, name, False),
    ]
    assert types(await streamed(job)) == [*TRUE_TYPES, name]


async def test_nor_does_the_id_of_what_follows_from_the_log(job: SignedJob) -> None:
    """Nobody signs a start: two that say something else are two, whatever they are called."""
    forged(job, START.model_copy(update={"worker_id": "rogue"}), "s")
    forged(job, START, "s")
    assert [one.sequence for one in logged_events(job.records)] == [1, 2, 3, 4]


async def test_what_its_writer_says_again_is_a_repeat(job: SignedJob) -> None:
    """Also where it is signed anew, with another path and without the certificate that the first one brought."""
    job.write(Party.LEDGER, ALLOWED)
    job.write(Party.LEDGER, ALLOWED, ALLOWED)
    assert [one.sequence for one in logged_events(job.records)] == [1, 2, 3, None, None]
    assert len({one.value for one in job.records[2:]}) == 3


async def test_a_page_of_void_records_leads_on(job: SignedJob) -> None:
    for number in range(5):
        forged(job, ALLOWED, f"f{number}")
    job.write(Party.PLANNER, COMPLETED)
    assert await shown(job, after=2, limit=5) == [(at, "policy_allowed", True) for at in range(3, 8)]
    assert await shown(job, after=7, limit=5) == [(8, "job_completed", False)]


@pytest.mark.parametrize(
    ("event", "version"), [(COMPLETED, "1"), (COMPLETED, "2"), (SEALED, "1"), (SEALED, "2")], ids=str
)
async def test_a_forged_end_ends_no_stream(job: SignedJob, event: Event, version: str) -> None:
    forged(job, event, "forged", version)
    job.write(Party.LEDGER, ALLOWED)
    assert types(await streamed(job)) == [*TRUE_TYPES, "policy_allowed"]
    assert [void for _, _, void in await shown(job)] == [False, False, True, False]


@pytest.mark.parametrize("word", [None, "0" * 64, try_of("n1"), words_of("n1").word(TryWord.IN_DOUBT)])
@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.RETRYABLE])
async def test_a_report_without_its_word_is_no_result(job: SignedJob, outcome: Outcome, word: str | None) -> None:
    forged(job, START)
    report = REPORT.model_copy(update={"outcome": outcome, "word": word})
    forged(job, report, "r")
    assert types(await streamed(job)) == [*TRUE_TYPES, "tool_invocation_started"]
    forged(job, REPORT, "r")
    assert types(await streamed(job)) == [*TRUE_TYPES, "tool_invocation_started", "tool_invocation_finished"]
    assert (await shown(job))[3:] == [
        (4, "tool_invocation_finished", True),
        (5, "tool_invocation_finished", False),
    ]


async def test_a_doubt_without_its_word_is_none(job: SignedJob) -> None:
    forged(job, START)
    doubt = h.about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="E", returned=True)
    forged(job, doubt.model_copy(update={"word": "0" * 64}))
    assert (await shown(job))[3:] == [(4, "invocation_in_doubt", True)]


class News:
    """A feed that has one record to tell, over and over."""

    def __init__(self, record: Record) -> None:
        self._record = record

    async def get(self) -> Record:
        await asyncio.sleep(0)
        return self._record

    def close(self) -> None:
        """Nobody has left."""


class ListedRecord:
    """The list, which says of a job that it runs."""

    async def job(self, job_id: str) -> Row:
        return replace(RUNS, job_id=job_id)


RUNS = Row("job-1", "t", "running", "h", "ann", "2026-01-01T00:00:00Z", birth=0)


class FoldedLog(ReadLog):
    """Folds as the gateway's reader does."""

    async def fold(self, _row: Row) -> JobSnapshot:
        state, numbers = None, Numbers()
        for record in await self.records(_row, 0):
            state = fold_into(state, record, numbers)
        return JobSnapshot("job-1", state, 0)


@pytest.mark.parametrize("true", [False, True])
async def test_a_forged_end_ends_no_wait_for_it(job: SignedJob, true: bool) -> None:
    if true:
        job.write(Party.PLANNER, COMPLETED)
    else:
        forged(job, COMPLETED)
    parts = (FoldedLog(job.records), ListedRecord(), Anytime(), Ticking(), job.installation.keys())
    waits = EndWaits(*cast("Any", parts))
    wait = EndWait(5, asyncio.get_running_loop().create_future())
    news = cast("JobFeed", News(job.records[-1]))
    assert await waits.ended(news, RUNS, wait) == ("completed" if true else "running")


class NoLog:
    """Is not asked."""

    async def fold(self, _row: Row) -> JobSnapshot:
        raise AssertionError("the log was read")


class UnendedLog:
    """A job's log that has no end in it."""

    def __init__(self) -> None:
        self.read = 0

    async def fold(self, _row: Row) -> JobSnapshot:
        self.read += 1
        return JobSnapshot("job-1", None, 0)


async def waited(job: SignedJob, log: object, records: Sequence[Record], *, since: int = 0, is_new: bool = True) -> str:
    parts = (log, ListedRecord(), Anytime(), Ticking(), job.installation.keys())
    waits, news = EndWaits(*cast("Any", parts)), JobFeed(HEARD)
    for record in records:
        news.put(record)
    news.close()
    wait = EndWait(60, asyncio.get_running_loop().create_future())
    return await waits.ended(news, replace(RUNS, birth=None, since=since), wait, is_new=is_new)


async def test_an_end_that_was_heard_with_its_birth_is_believed_without_the_log(job: SignedJob) -> None:
    job.write(Party.PLANNER, COMPLETED)
    assert await waited(job, NoLog(), job.records) == "completed"


async def test_what_was_not_heard_from_the_birth_on_is_for_the_log_to_say(job: SignedJob) -> None:
    job.write(Party.PLANNER, COMPLETED)
    for records, since, is_new in ((job.records[1:], 0, True), (job.records, 1, True), (job.records, 0, False)):
        log = UnendedLog()
        assert await waited(job, log, records, since=since, is_new=is_new) == "running"
        assert log.read == 1


@pytest.mark.parametrize("who", ["nobody", "a ledger", "a revoked planner", "under no root", "under another root"])
async def test_a_false_end_is_not_believed_as_it_is_heard(job: SignedJob, tmp_path: Path, who: str) -> None:
    records: Sequence[Record] = ()
    if who == "nobody":
        forged(job, COMPLETED)
    elif who == "a ledger":
        job.judge(drafted(COMPLETED).replaced(value=by_hand(job, Party.LEDGER, COMPLETED)), COMPLETED)
    elif who == "a revoked planner":
        late = by_hand(job, Party.PLANNER, COMPLETED)
        job.judge(drafted(revocation(job.installation, Party.PLANNER)))
        job.judge(drafted(COMPLETED).replaced(value=late), COMPLETED)
    elif who == "under no root":
        records = [placed(drafted(one), at) for at, one in enumerate((created(), COMPLETED))]
    else:
        (tmp_path / "others").mkdir()
        other = SignedJob(Installation(tmp_path / "others"))
        other.write(Party.PLANNER, COMPLETED)
        records = other.records
    log = UnendedLog()
    assert await waited(job, log, records or job.records) == "running"
    assert log.read == 1


class Ticking(At):
    """A clock on which each look takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = count()

    def monotonic(self) -> float:
        return float(next(self._seconds))


class AnswersLater:
    """A command's writer: what is appended once the command is sent."""

    answer_s = 60.0

    def __init__(self, job: SignedJob, news: JobFeed, *, true: bool) -> None:
        self._job, self._news, self._true = job, news, true

    async def send(self, _command: object, _trace: object) -> str:
        said: dict[str, Any] = {
            "caused_by": "cmd-1",
            "ask": "q",
            "place": 0,
            "of": 1,
            "resource": {},
            "mode": "reconcile",
        }
        confirmed = key_event(ev.EffectConfirmed, **said)
        forged(self._job, confirmed, "forged")
        if self._true:
            self._job.write(Party.PROBER, key_event(ev.ConfirmationFailed, **said, reason="drift"))
        for record in self._job.records:
            self._news.put(record)
        self._news.close()
        return "cmd-1"


class HeardLog:
    """A job's records up to now, and what is to come."""

    def __init__(self, records: Sequence[Record], news: JobFeed) -> None:
        self._records, self._news = list(records), news

    async def end(self, _job_id: str) -> int:
        return len(self._records)

    async def records(self, _row: object, _end: int) -> list[Record]:
        return self._records

    async def row(self, _caller: object, _job_id: str) -> Row:
        return RUNS

    @asynccontextmanager
    async def listening(self, _job_id: str) -> AsyncGenerator[JobFeed]:
        yield self._news


@pytest.mark.parametrize(("true", "counts"), [(True, (0, 1)), (False, (0, 0))])
async def test_a_confirmation_that_the_prober_has_not_signed_is_not_counted(
    *, job: SignedJob, monkeypatch: pytest.MonkeyPatch, true: bool, counts: tuple[int, int]
) -> None:
    monkeypatch.setattr(reconciliations, "wanted", lambda *_asked: reconciliations.ResourceCounts(1, 0))
    news, caller = JobFeed(), type("Caller", (), {"id": "ann", "tenant": "t"})
    log = HeardLog(job.records, news)
    registry = type("Registry", (), {"verifies": None})
    parts = (log, AnswersLater(job, news, true=true), registry, Anytime())
    found = (await Reconciliation(*cast("Any", parts)).reconcile(cast("Principal", caller), "job-1")).answer
    assert (found.confirmed, found.failed, found.ok) == (*counts, False)
