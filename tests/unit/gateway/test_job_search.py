"""Jobs are found by what is in them, by who may read that, and by nobody else; what is hidden is not there at all."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.gateway.core.job_searches import JobSearch
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, Unavailable
from aetheris.gateway.job_search_index import JobSearchIndex
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event
from aetheris.runtime.base.clock import SystemClock
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.testkit import histories as h
from tests.testkit.job_histories import PLAN, refunded

HIDDEN = {"$hidden": {"c": "c" * 64, "d": "d" * 64, "k": "e" * 32}}
LISTED_S = 30 * 86400.0
TENANT = h.created().tenant


def caller(tenant: str = "", id_: str = "ann", *roles: Role) -> Principal:
    return Principal(id_, tenant or TENANT, PrincipalKind.PERSON, frozenset(roles or (Role.READ, Role.READ_PAYLOADS)))


ANN = caller()


class Searched:
    """A search over jobs that a test puts into a log in memory."""

    def __init__(self) -> None:
        self.log = MemoryLog(1)
        self.appender = MemoryAppender(self.log)
        self.jobs: dict[str, list[Record]] = {}
        self.reads: list[str] = []
        self.index = JobSearchIndex(self.log, self._read, SystemClock(), patience_s=20.0, listed_for_s=LISTED_S)

    async def _read(self, entry: JobIndexEntry) -> Sequence[Record]:
        self.reads.append(entry.job_id)
        if entry.job_id == "bad":
            raise Unavailable("job_unreadable", "no")
        return self.jobs.get(entry.job_id, [])

    async def put(self, job_id: str, *events: Event, status: str = "completed", at: int = 0, **born: Any) -> None:
        """A job with these events, all of which say its id; and its line."""
        given = [event.model_copy(update={"job_id": job_id}) for event in events]
        given[0] = given[0].model_copy(update={"submitted_by": "agent-7", **born})
        made = [draft(Topic.JOBS_EVENTS, one, key=job_id, id=f"{job_id}-{n}", source="t", time=_time(at))
                for n, one in enumerate(given)]  # fmt: skip
        self.jobs[job_id] = [Record(one.topic, 0, n, 0, one.key, one.headers, one.value) for n, one in enumerate(made)]
        await self.line(job_id, status=status, at=at, **born)

    async def line(self, job_id: str, *, status: str, at: int = 0, **more: Any) -> None:
        line = JobIndexEntry(
            job_id=job_id,
            birth=0,
            request_hash="r",
            status=status,
            tenant=more.get("tenant", TENANT),
            submitted_by=more.get("submitted_by", "agent-7"),
            created_at=_time(at),
        )
        await self.appender.append(
            [(draft(Topic.JOBS_INDEX, line, key=job_id, id=f"l{at}", source="t", time=_time(at)),)]
        )

    async def found(self, who: Principal = ANN, /, **asked: Any) -> list[str]:
        return [one["job_id"] for one in (await self.index.found(who, JobSearch(**asked), None, 50))["jobs"]]


def _time(at: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).isoformat()


@asynccontextmanager
async def searched() -> AsyncGenerator[Searched]:
    made = Searched()
    await made.appender.start()
    try:
        yield made
    finally:
        await made.index.close()


async def test_a_job_is_found_by_each_thing_that_is_in_it() -> None:
    async with searched() as one:
        labels = {"order": "4711"}
        await one.put(h.JOB, *refunded(), labels=labels, agent="bookkeeper", goal="pay the invoice", plan=None)
        failed = ev.JobFailed(job_id="x", error="the bank's door is shut")
        await one.put("other-2", h.created(), h.planned(PLAN), failed, status="failed", at=5)
        for asked in (
            {"job_id": h.JOB},
            {"job_id": h.JOB[:2]},
            {"external_id": "re_123"},
            {"argument": ("order", "o-1"), "label": ("order", "4711")},
            {"argument": ("amount", "250")},
            {"argument": ("amount", "250"), "tool": "refund"},
            {"label": ("order", "4711")},
            {"agent": "bookkeeper"},
            {"status": "completed"},
            {"until": datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)},
            {"words": "invoice"},
            {"words": "INVO pay 4711"},
            {"words": "re_123"},
        ):
            assert await one.found(**asked) == [h.JOB], asked
        for asked in (
            {"status": "failed"},
            {"error": "bank's door"},
            {"words": "shut"},
            {"since": datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)},
        ):
            assert await one.found(**asked) == ["other-2"], asked
        assert await one.found(agent="agent-7") == ["other-2", h.JOB]
        for asked in (
            {"argument": ("amount", "250"), "tool": "find"},
            {"error": "invoice"},
            {"words": "nothing like it"},
        ):
            assert await one.found(**asked) == [], asked


async def test_another_tenant_finds_nothing_of_it_by_whatever_is_asked() -> None:
    async with searched() as one:
        await one.put(h.JOB, *refunded(), labels={"order": "4711"}, goal="pay the invoice", plan=None, agent="b")
        eve = caller("evil")
        own = (
            {},
            {"job_id": h.JOB},
            {"job_id": ""},
            {"external_id": "re_123"},
            {"tool": "refund"},
            {"argument": ("amount", "250")},
            {"label": ("order", "4711")},
            {"agent": "b"},
            {"status": "completed"},
            {"words": "invoice"},
            {"words": '" OR told : "refund'},
            {"words": "') OR 1=1 --"},
            {"error": "*"},
            {"words": "invoice OR refund NOT x NEAR(a b)"},
        )
        for asked in own:
            assert await one.found(eve, **asked) == [], asked
        assert await one.found(caller(f"{TENANT}' OR '1'='1")) == []
        assert await one.found() == [h.JOB]


async def test_the_birth_says_whose_a_job_is_and_not_the_index() -> None:
    async with searched() as one:
        await one.put(h.JOB, *refunded())
        await one.line(h.JOB, status="completed", tenant="evil", submitted_by="eve")
        assert await one.found(caller("evil", "eve")) == []
        assert await one.found() == [h.JOB]


async def test_who_reads_no_payloads_finds_nothing_by_goal_or_argument_but_of_his_own_jobs() -> None:
    async with searched() as one:
        await one.put("hers", *refunded(), goal="pay the invoice", plan=None, submitted_by="bob")
        await one.put("his", *refunded(), goal="pay the invoice", plan=None, submitted_by="carl", at=1)
        reader, carl = caller(TENANT, "rita", Role.READ), caller(TENANT, "carl", Role.READ, Role.SUBMIT)
        for asked in ({"words": "invoice"}, {"words": "o-1"}, {"argument": ("order", "o-1")}):
            assert await one.found(reader, **asked) == [], asked
            assert await one.found(carl, **asked) == ["his"], asked
            assert await one.found(**asked) == ["his", "hers"], asked
        assert await one.found(reader, words="refund") == ["his", "hers"], "its steps he may see"
        assert await one.found(reader, words="refund invoice") == []


async def test_a_hidden_value_and_what_names_it_is_not_in_the_database_at_all() -> None:
    plan = h.graph({"id": "tell", "tool": "mail", "args": {"to": HIDDEN, "all": [HIDDEN, "open"]}}, mail={})
    async with searched() as one:
        await one.put("mailed", h.created(), h.planned(plan), status="running")
        assert await one.found(words="open") == ["mailed"]
        told = "\n".join(one.index._rows.iterdump())  # pyright: ignore[reportPrivateUsage]
        for secret in ("c" * 64, "d" * 64, "e" * 32, "$hidden"):
            assert secret not in told
            assert await one.found(words=secret) == []


async def test_a_job_is_read_when_it_is_seen_and_when_it_has_ended_and_no_more() -> None:
    async with searched() as one:
        await one.put(h.JOB, h.created(), h.planned(PLAN), status="running")
        assert await one.found(external_id="re_123") == []
        for _ in range(20):
            for status in ("waiting", "running"):
                await one.line(h.JOB, status=status)
                assert await one.found(status=status) == [h.JOB]
        await one.put(h.JOB, *refunded())
        assert await one.found(external_id="re_123") == [h.JOB]
        await one.line(h.JOB, status="completed")
        assert await one.found(words="refund") == [h.JOB]
        assert one.reads == [h.JOB, h.JOB]


async def test_what_nobody_can_read_or_nobody_signed_keeps_no_other_job_from_being_found() -> None:
    async with searched() as one:
        await one.line("bad", status="running")
        await one.line("unborn", status="running")
        await one.put(h.JOB, *refunded())
        assert await one.found() == [h.JOB]


async def test_jobs_come_in_pages_newest_first_and_a_cursor_is_of_its_own_question() -> None:
    async with searched() as one:
        for at in range(5):
            await one.put(f"j{at}", h.created(), h.planned(PLAN), status="running", at=at)
        asked, seen, cursor, kept = JobSearch(tool="refund"), list[str](), None, ""
        while True:
            page = await one.index.found(ANN, asked, cursor, 2)
            seen += [job["job_id"] for job in page["jobs"]]
            cursor = page["cursor"]
            if cursor is None:
                break
            kept = cursor
        assert seen == ["j4", "j3", "j2", "j1", "j0"]
        for who, other in ((ANN, JobSearch(tool="find")), (caller("evil"), asked)):
            with pytest.raises(BadRequestProblem):
                await one.index.found(who, other, kept, 2)


async def test_texts_that_no_database_takes_are_kept_and_asked_all_the_same() -> None:
    plan = h.graph({"id": "tell", "tool": "mail", "args": {"to": "nul\x00 and more"}}, mail={})
    async with searched() as one:
        await one.put("odd", h.created(), h.planned(plan), status="running")
        assert await one.found(words="more") == ["odd"]
        for words in ("\x00", "\ud800", "!!!", '"', "x" * 300, "*", "( ) { } ^ : -"):
            assert await one.found(words=words) in ([], ["odd"])
