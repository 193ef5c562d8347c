"""Jobs are found by what is in them, by who may read that, and by nobody else; what is hidden is not there at all."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aetheris.gateway.core.job_searches import JobSearch
from aetheris.gateway.core.problems import BadRequestProblem, Unavailable
from aetheris.protocol.base.principals import Role
from aetheris.protocol.messages import events as ev
from tests.testkit import histories as h
from tests.testkit.job_histories import PLAN, refunded
from tests.testkit.searched_jobs import ANN, TENANT, caller, searched

HIDDEN = {"$hidden": {"c": "c" * 64, "d": "d" * 64, "k": "e" * 32}}


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
        told = one.index._database.text()  # pyright: ignore[reportPrivateUsage]
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


async def test_a_process_goes_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    async with searched(tmp_path) as one:
        await one.put(h.JOB, *refunded())
        await one.put("open", h.created(), h.planned(PLAN), status="running", at=1)
        assert await one.found() == ["open", h.JOB]
        await one.again(tmp_path)
        await one.line("open", status="waiting", at=1)
        assert await one.found(tool="refund") == ["open", h.JOB]
        assert await one.found(status="waiting") == ["open"]
        assert one.reads == [h.JOB, "open"], "no job is read again"
        assert _modes(tmp_path) == {0}, "its owner's alone"


def _modes(folder: Path) -> set[int]:
    """What others may do with its files."""
    return {path.stat().st_mode & 0o077 for path in folder.glob("jobs.sqlite*")}


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20_000])


def _overwritten(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:8_192] + b"\x5a" * (len(whole) - 12_288) + whole[-4_096:])


def _of_another_format(file: Path) -> None:
    with closing(sqlite3.connect(file)) as rows:
        rows.execute("PRAGMA user_version = 7")


def _without_its_words(file: Path) -> None:
    with closing(sqlite3.connect(file)) as rows:
        rows.execute("DELETE FROM words_data WHERE id > 10")
        rows.commit()


@pytest.mark.parametrize(
    "hurt",
    [
        Path.unlink,
        _cut,
        _overwritten,
        _of_another_format,
        _without_its_words,
        lambda file: file.write_bytes(b"no database at all" * 100),
        lambda file: file.write_bytes(b""),
    ],
)
async def test_what_is_missing_damaged_or_of_another_format_is_made_anew(
    tmp_path: Path, hurt: Callable[[Path], object]
) -> None:
    async with searched(tmp_path) as one:
        await one.put(h.JOB, *refunded())
        await one.put("open", h.created(), h.planned(PLAN), status="running", at=1)
        assert await one.found(words="refund") == ["open", h.JOB]
        await one.index.close()
        hurt(tmp_path / "jobs.sqlite")
        await one.again(tmp_path)
        assert await one.found(words="refund") == ["open", h.JOB]
        assert one.reads == [h.JOB, "open"] * 2, "all of it is read again"
        await one.again(tmp_path)
        assert await one.found(words="refund") == ["open", h.JOB]
        assert len(one.reads) == 4, "and kept"


async def test_what_is_damaged_beneath_a_process_is_made_anew_by_the_next_question(tmp_path: Path) -> None:
    async with searched(tmp_path) as one:
        for at in range(200):
            await one.put(f"j{at}", *refunded(), goal=f"goal {at}" * 50, plan=None, at=at)
        assert await one.found(words="goal", job_id="j199") == ["j199"]
        await one.again(tmp_path)
        assert await one.found(job_id="none") == []
        _overwritten(tmp_path / "jobs.sqlite")
        one.index._database.select("PRAGMA shrink_memory", ())  # pyright: ignore[reportPrivateUsage]  forgets what was read
        with pytest.raises(Unavailable, match="is being read from the log"):
            await one.found(words="goal")
        assert await one.found(words="goal", job_id="j199") == ["j199"]
        assert len(one.reads) == 400


@pytest.mark.parametrize("seed", range(4))
async def test_who_is_killed_in_mid_write_leaves_what_the_next_goes_on_from(tmp_path: Path, seed: int) -> None:
    """The place of the kill is by chance, from the seed: before, within or behind a transaction."""
    count, killed_at = 300, random.Random(seed).randrange(100, 4_000)  # noqa: S311  no secret
    argv = [sys.executable, "-m", "tests.testkit.searched_jobs", str(tmp_path), str(count), str(killed_at)]
    killed = await asyncio.to_thread(subprocess.run, argv, check=False)
    assert killed.returncode == -signal.SIGKILL, seed
    async with searched(tmp_path) as one, searched() as fresh:
        for other in (one, fresh):
            for number in range(count):
                await other.put_one(number)
        for asked in ({"words": "goal"}, {"tool": "refund"}, {"argument": ("order", "o-1")}, {"words": "goal 7"}):
            assert await one.found(**asked) == await fresh.found(**asked), asked
        assert 0 < len(one.reads) < count, "what was written is not read again"
        for name in ("job", "words", "call", "argument", "label"):
            counted = f"SELECT count(*) FROM {name}"  # noqa: S608  ours
            have = [each.index._database.select(counted, ()) for each in (one, fresh)]  # pyright: ignore[reportPrivateUsage]
            assert have[0] == have[1], name


async def test_of_another_log_nothing_is_found(tmp_path: Path) -> None:
    async with searched(tmp_path) as one:
        await one.put("theirs", *refunded())
        assert await one.found() == ["theirs"]
    async with searched(tmp_path) as other:
        await other.put("ours", *refunded())
        assert await other.found() == ["ours"]
    async with searched(tmp_path) as shorter:
        assert await shorter.found() == []


async def test_of_two_processes_one_keeps_the_file_and_both_answer(tmp_path: Path) -> None:
    async with searched(tmp_path) as one:
        await one.put(h.JOB, *refunded())
        assert await one.found() == [h.JOB]
        first, one.index = one.index, one.begun(tmp_path)
        assert await one.found() == [h.JOB]
        await one.index.close()
        one.index = first
        assert await one.found() == [h.JOB]


async def test_a_folder_that_cannot_be_written_to_keeps_nobody_from_asking(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with searched(tmp_path / "file" / "search") as one:
        await one.put(h.JOB, *refunded())
        assert await one.found() == [h.JOB]
