"""Ranges of seals and what is written of them: only what was sealed, each job once, whoever settles a range."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aetheris.archiver.core.judged_jobs import NotAsSealed, judged_rows
from aetheris.archiver.core.ranges import BadRange, SealRange, begin_of, file_path, range_path, read_range
from aetheris.archiver.core.sealed_jobs import SealedJob, SealedJobs
from aetheris.archiver.parquet_store import ParquetStore, store_at
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Record
from aetheris.views.query_rows import COLUMNS
from tests.testkit.evidence import KEY, OTHER_KEY
from tests.testkit.proof_histories import TENANT
from tests.testkit.stored_jobs import stored_job
from tests.testkit.written_rows import (
    BATCH,
    LATER,
    AmendedJob,
    facts,
    handler_of,
    record_of,
    run_until,
    shop_job,
    unsure_then_late,
    written,
)

KNOWN = [TrustedKey(KEY.public_key())]


def sealed(number: int = 3) -> tuple[SealedJob, list[Record]]:
    *records, seal = shop_job(number)
    job = SealedJobs(KNOWN).take(0, seal.value)
    assert job is not None
    return job, [record_of(one) for one in records]


def test_of_a_job_the_first_signed_line_counts_and_no_other() -> None:
    line, jobs = shop_job(1)[-1].value, SealedJobs(KNOWN)
    body = json.loads(line)
    assert jobs.take(0, b"\xff no line") is None
    assert jobs.take(1, json.dumps(body | {"event_count": 2}).encode()) is None, "nobody signed that"
    assert jobs.take(2, json.dumps(body | {"amends": "a" * 64}).encode()) is None
    found = jobs.take(3, line)
    assert found is not None
    assert (found.line, found.job_id) == (3, body["job_id"])
    assert jobs.take(4, line) is None, "the same once more"
    assert SealedJobs([TrustedKey(OTHER_KEY.public_key())]).take(0, line) is None


def test_an_amendment_counts_where_it_amends_the_last_line_of_its_job() -> None:
    (first, second), jobs = AmendedJob(unsure_then_late()).lines, SealedJobs(KNOWN)
    assert jobs.take(0, second.value) is None, "what it amends is not there"
    sealed_first, amended = jobs.take(1, first.value), jobs.take(2, second.value)
    assert sealed_first is not None
    assert amended is not None
    assert (sealed_first.amendment, amended.amendment) == (0, 1)
    assert amended.event_count > sealed_first.event_count
    assert jobs.take(3, second.value) is None, "the same once more"
    assert jobs.take(4, first.value) is None


def test_what_came_behind_a_seal_and_is_proved_changes_the_rows_and_nothing_else_does() -> None:
    job, known = AmendedJob(unsure_then_late()), SealedJobs(KNOWN)
    versions = [known.take(line.offset, line.value) for line in job.lines]
    before, after = (judged_rows(one, job.records, payloads=True) for one in versions if one is not None)
    assert [(row["amendment"], row["amended_at"]) for row in before.jobs] == [(0, None)]
    assert after.jobs[0]["sealed_at"] == before.jobs[0]["sealed_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert (after.jobs[0]["amendment"], after.jobs[0]["amended_at"]) == (1, datetime.fromisoformat(LATER))
    assert ("re_late", "success") not in {(row["external_id"], row["outcome"]) for row in before.effects}
    assert ("re_late", "success") in {(row["external_id"], row["outcome"]) for row in after.effects}
    assert len(after.events) > len(before.events)
    assert "the CFO" not in json.dumps([after.of(table) for table in COLUMNS], default=str)
    amended = versions[1]
    assert amended is not None
    with pytest.raises(NotAsSealed, match="records_missing"):
        judged_rows(amended, job.records[: amended.event_count - 1], payloads=True)
    with pytest.raises(NotAsSealed, match="seal_missing"):
        judged_rows(replace(amended, amends="0" * 64), job.records, payloads=True)


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_amendment_is_written_beside_what_it_amends_in_the_day_of_the_seal(
    tmp_path: Path, at_once: bool
) -> None:
    job = AmendedJob(unsure_then_late())
    handler = handler_of(tmp_path, job)
    await handler.begin()
    for lines in [job.lines] if at_once else [job.lines[:1], job.lines[1:]]:
        await handler.came(lines)
        await run_until(handler, lines[-1].offset + 1)
    assert sorted(one["amendment"] for one in facts(tmp_path, "jobs")) == [0, 1]
    assert {path.parent.name for path in contents(tmp_path) if path.suffix == ".parquet"} == {"day=2026-01-01"}
    for table in ("steps", "effects", "events"):
        counted = {one["amendment"]: one[table] for one in facts(tmp_path, "jobs")}
        for times, count in counted.items():
            assert sum(one["amendment"] == times for one in facts(tmp_path, table)) == count


def test_only_what_the_seal_covers_is_written() -> None:
    job, records = sealed()
    late = [records[-1].replaced(offset=500), records[-2].replaced(offset=501)]
    assert judged_rows(job, [*records, *late], payloads=True) == judged_rows(job, records, payloads=True)
    changed = [*records[:4], records[4].replaced(value=b'{"job_id":"x"}'), *records[5:]]
    timed = [
        records[0].replaced(headers=(*records[0].headers[:-2], ("ce_time", b"2020-01-01T00:00:00Z"))),
        *records[1:],
    ]
    for wrong, code in (
        (records[:-1], "records_missing"),
        ([], "records_missing"),
        (changed, "other_than_sealed"),
        (timed, "other_than_sealed"),
        ([records[0], *reversed(records[1:])], "other_than_sealed"),
    ):
        with pytest.raises(NotAsSealed, match=code):
            judged_rows(job, wrong, payloads=True)


def test_nothing_is_left_of_hidden_values_and_of_what_proves_arecord_of() -> None:
    job, records = sealed()
    rows = judged_rows(job, records, payloads=True)
    said = json.dumps([rows.of(table) for table in COLUMNS], default=str)
    assert f"{3:032x}" in said, "whose it is"
    assert f"{3:064x}" not in said
    assert '\\"c\\"' not in said
    assert '\\"word\\"' not in said
    bare = judged_rows(job, records, payloads=False)
    kept = json.dumps([bare.of(table) for table in COLUMNS], default=str)
    assert "o-3" not in kept
    assert "refunded" not in kept
    assert [row["state"] for row in bare.steps] == ["completed", "completed"]


async def test_a_range_is_settled_once_and_files_of_the_same_range_have_one_name(tmp_path: Path) -> None:
    stores = [ParquetStore(store_at(str(tmp_path))) for _ in range(2)]
    assert await stores[0].last() is None
    first, second = SealRange(begin=0, end=5, jobs=3), SealRange(begin=0, end=9, jobs=7)
    assert await stores[0].settle(first) == first
    assert await stores[1].settle(second) == first
    assert await stores[1].last() == first
    assert (
        file_path(TENANT, "jobs", "2026-01-01", 0, 5)
        == "tenants/acme/jobs/day=2026-01-01/000000000000-000000000005.parquet"
    )
    assert "acme/../x" not in file_path("acme/../x", "jobs", "2026-01-01", 0, 5)
    (tmp_path / range_path(0)).write_bytes(b"{}")
    with pytest.raises(BadRange, match="000000000000"):
        await stores[0].last()
    with pytest.raises(BadRange):
        read_range(second.dump(), 1)
    assert begin_of("none.json") is None


@pytest.mark.parametrize("payloads", [True, False])
async def test_what_is_written_is_read_back_each_job_once_over_several_ranges(
    tmp_path: Path, payloads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aetheris.archiver.handlers.MOST_JOBS", 8)
    await written(tmp_path, 30, payloads=payloads)
    jobs = facts(tmp_path, "jobs")
    assert sorted(one["job_id"] for one in jobs) == sorted(
        shop_job(number)[-1].header("ce_subject").decode() for number in range(30)
    )
    assert len(await store_at(str(tmp_path)).names_at("ranges")) > 3
    for table in ("steps", "effects", "events"):
        assert len(facts(tmp_path, table)) == sum(one[table] for one in jobs)
    assert BATCH > 30


async def test_one_more_writer_writes_the_same(tmp_path: Path) -> None:
    await written(tmp_path, 6)
    before = contents(tmp_path)
    for path in before:
        if path.suffix == ".parquet":
            path.unlink()
    await written(tmp_path, 6)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.*")}


def test_a_job_without_times_is_sealed_all_the_same() -> None:
    job = stored_job()
    found = SealedJobs(KNOWN).take(7, job.seal)
    assert found is not None
    rows = judged_rows(found, [record_of(one) for one in job.records], payloads=True)
    assert (rows.jobs[0]["job_id"], rows.jobs[0]["created_at"]) == (job.id, None)
