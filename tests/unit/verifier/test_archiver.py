"""Sealed jobs become bundles in the store, each once, whole or not at all, whoever dies, lies or comes late."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from aetheris.proofs import bundle
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobBehind
from aetheris.runtime.blobs.store import BlobsUnreachable
from aetheris.runtime.log.interface import ArchiveUnusable, LogUnreachable
from aetheris.verifier.core.partition import raw
from aetheris.verifier.proofs import PackedJob
from tests.testkit.archives import PLACE, ArchivingVerifier, eventually
from tests.testkit.evidence import amend, seal
from tests.testkit.proof_histories import TENANT, Log
from tests.testkit.stored_jobs import StoredJob, stored_job


@pytest.fixture
async def verifier(tmp_path: Path) -> ArchivingVerifier:
    verifier = ArchivingVerifier(tmp_path)
    await verifier.start()
    return verifier


async def sealed(verifier: ArchivingVerifier) -> StoredJob:
    job = stored_job()
    await verifier.seal_told(job, await verifier.store(job))
    return job


async def test_a_sealed_job_becomes_a_bundle_that_proves_it_and_a_line_that_names_it(
    verifier: ArchivingVerifier,
) -> None:
    job = await sealed(verifier)
    async with verifier.archiving() as archiver:
        await verifier.archived(job)
        await eventually(lambda: archiver.late_s == 0)
    line = verifier.line(job.id)
    assert line is not None
    [path] = verifier.files()
    assert path == verifier.folder / "blobs" / line.path
    assert path.parent.parent.name == TENANT
    report = bundle.judge(path.read_bytes(), verifier.proofs.keys.trusted)
    assert (report["ok"], report["job_id"]) == (True, job.id)
    assert line.until == len(job.records)


async def test_what_is_archived_is_not_archived_again_by_who_comes_next(verifier: ArchivingVerifier) -> None:
    jobs = [await sealed(verifier) for _ in range(3)]
    async with verifier.archiving():
        await verifier.archived(*jobs)
    await verifier.start()
    last = await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(last)
    assert len(verifier.files()) == len(verifier.log.records(Topic.JOBS_ARCHIVE)) == 4


async def test_who_is_killed_between_bundle_and_line_is_followed_by_one_that_archives_it(
    verifier: ArchivingVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await sealed(verifier)
    written = asyncio.Event()

    async def dies(_data: bytes) -> None:
        written.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(type(verifier.proofs), "check", lambda _self, data: dies(data))
    async with verifier.archiving():
        await asyncio.wait_for(written.wait(), 30)
    assert len(verifier.files()) == 1
    assert verifier.line(job.id) is None
    monkeypatch.undo()
    await verifier.start()
    async with verifier.archiving():
        await verifier.archived(job)


async def test_a_bundle_that_the_store_has_altered_is_named_by_no_line(
    verifier: ArchivingVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = await sealed(verifier), await sealed(verifier)
    kept = verifier.blobs.put_at

    async def altered(path: str, data: bytes) -> None:
        await kept(path, data[:-1] + b"x" if job.id in path else data)

    monkeypatch.setattr(verifier.blobs, "put_at", altered)
    async with verifier.archiving() as archiver:
        await verifier.archived(other)
        assert verifier.line(job.id) is None
        assert archiver.refused == {job.id: "blob_corrupt"}


async def test_a_store_that_is_away_is_waited_for(verifier: ArchivingVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    job, kept, tried = await sealed(verifier), verifier.blobs.put_at, list[str]()

    async def at_third(path: str, data: bytes) -> None:
        tried.append(path)
        if len(tried) < 3:
            raise BlobsUnreachable("away")
        await kept(path, data)

    monkeypatch.setattr(verifier.blobs, "put_at", at_third)
    async with verifier.archiving() as archiver:
        await verifier.archived(job)
    assert (len(tried), archiver.refused) == (3, {})


async def test_a_job_whose_records_cant_be_read_has_four_tries_and_then_holds_up_no_other(
    verifier: ArchivingVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = await sealed(verifier), await sealed(verifier)
    packed, tried = verifier.proofs.packed, list[str]()

    async def of_others(job_id: str) -> PackedJob:
        if job_id != job.id:
            return await packed(job_id)
        tried.append(job_id)
        raise LogUnreachable("its partition has no leader")

    monkeypatch.setattr(type(verifier.proofs), "packed", lambda _self, job_id: of_others(job_id))
    async with verifier.archiving() as archiver:
        await verifier.archived(other)
    assert (len(tried), archiver.refused) == (4, {job.id: "log_unreachable"})


async def test_a_job_that_breaks_a_rule_is_named_and_holds_up_no_other(verifier: ArchivingVerifier) -> None:
    broken = stored_job()
    records = list(broken.records)
    del records[2]
    await verifier.seal_told(broken, await verifier.store(StoredJob(broken.id, records, records)))
    other = await sealed(verifier)
    async with verifier.archiving() as archiver:
        await verifier.archived(other)
        assert archiver.refused.keys() == {broken.id}
    assert len(verifier.files()) == 1


async def test_young_jobs_are_left_where_they_are(tmp_path: Path) -> None:
    verifier = ArchivingVerifier(tmp_path)
    await verifier.start(timedelta(days=365 * 200))  # a record of this log is as old as 1970
    job = await sealed(verifier)
    async with verifier.archiving() as archiver:
        await eventually(lambda: archiver.waits_s > 0, lambda: asyncio.sleep(0.01))
        assert verifier.line(job.id) is None
        assert archiver.late_s == 0


async def test_what_comes_behind_the_seal_is_archived_with_its_job_anew(verifier: ArchivingVerifier) -> None:
    job = await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(job)
        first = verifier.line(job.id)
        at = await verifier.late(job)
        await eventually(lambda: verifier.line(job.id) != first)
    line = verifier.line(job.id)
    assert line is not None
    assert line.until == at + 1
    await verifier.start()
    found = await verifier.archive.records(job.id, 0)
    assert [record.offset for record in found] == [*range(len(job.records)), at]


async def test_who_writes_behind_a_seal_again_and_again_has_ever_fewer_bundles_made_of_it(
    verifier: ArchivingVerifier,
) -> None:
    job, other = await sealed(verifier), await sealed(verifier)
    made: list[float] = []
    async with verifier.archiving():
        await verifier.archived(job, other)
        hours = 0
        while hours < 24 * 20:
            at, before = await verifier.late(job), len(verifier.files())
            marker = await sealed(verifier)
            await verifier.archived(marker)
            line = verifier.line(job.id)
            assert line is not None
            if line.until == at + 1:
                made.append(hours)
            assert len(verifier.files()) == before + 1 + (line.until == at + 1)
            hours += 1 if hours < 20 else 12
            verifier.clock.ahead_s = hours * 3600.0 + 60
        assert made[:4] == [0, 1, 3, 7]
        assert len(made) <= 11, "once a week at last"
        last = await verifier.late(other)
        await eventually(lambda: (line := verifier.line(other.id)) is not None and line.until == last + 1)


async def test_a_line_of_the_index_that_tells_of_nothing_archives_nothing_and_ends_nobody(
    verifier: ArchivingVerifier,
) -> None:
    await verifier.seal_told(stored_job(), 10_000)
    await verifier.late(stored_job(), b"\xff")
    job = await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(job)
    assert len(verifier.files()) == 1


async def test_an_archived_job_is_read_as_before_when_the_log_has_let_go_of_it(verifier: ArchivingVerifier) -> None:
    job = await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(job)
    await verifier.start()
    report, records = await verifier.proofs.verify(job.id, TENANT), await verifier.proofs.stream(job.id, TENANT)
    verifier.log.delete_below(PLACE, len(job.records))
    assert await verifier.proofs.verify(job.id, TENANT) == report
    assert [*map(raw, await verifier.proofs.stream(job.id, TENANT))] == [*map(raw, records)]
    again = await verifier.proofs.evidence(job.id, TENANT)
    assert bundle.judge(again, verifier.proofs.keys.trusted)["ok"]


async def test_what_came_behind_an_archived_job_is_read_with_it(verifier: ArchivingVerifier) -> None:
    job = await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(job)
    at = await verifier.late(job)
    verifier.log.delete_below(PLACE, len(job.records))
    await verifier.start()
    found = await verifier.proofs.stream(job.id, TENANT)
    assert [record.offset for record in found] == [*range(len(job.records)), at]


@pytest.mark.parametrize("harm", ["removed", "altered", "another's", "unnamed", "of another job"])
async def test_a_bundle_that_is_no_good_is_named_when_the_log_has_let_go_of_its_job(
    verifier: ArchivingVerifier, harm: str
) -> None:
    job, other = await sealed(verifier), await sealed(verifier)
    async with verifier.archiving():
        await verifier.archived(job, other)
    line, others = verifier.line(job.id), verifier.line(other.id)
    assert line is not None
    assert others is not None
    path = verifier.folder / "blobs" / line.path
    if harm == "removed":
        path.unlink()
    elif harm == "altered":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    elif harm == "another's":
        path.write_bytes((verifier.folder / "blobs" / others.path).read_bytes())
    elif harm == "unnamed":
        verifier.log.lose((str(Topic.JOBS_ARCHIVE), 0))
    else:
        forged = line.model_copy(update={"sha256": others.sha256})
        (verifier.folder / "blobs" / forged.path).write_bytes((verifier.folder / "blobs" / others.path).read_bytes())
        await verifier.say(Topic.JOBS_ARCHIVE, job.id, forged)
    verifier.log.delete_below(PLACE, len(job.records))
    await verifier.start()
    with pytest.raises(ArchiveUnusable) as refused:
        await verifier.proofs.verify(job.id, TENANT)
    expected = {"removed": "archive_missing", "unnamed": "not_archived"}
    assert refused.value.code == expected.get(harm, "archive_corrupt")
    assert (await verifier.proofs.verify(other.id, TENANT))["ok"]


@pytest.mark.parametrize("amended", [False, True])
async def test_a_late_success_is_archived_behind_its_seal_amended_or_not(
    verifier: ArchivingVerifier, *, amended: bool
) -> None:
    log = Log()
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    seal(log)
    count = len(log.records)
    log.finish("n1", via="late")
    if amended:
        amend(log)
    job = StoredJob(log.job, log.records, log.records)
    birth = await verifier.store(job)
    await verifier.seal_told(job, birth, ((birth, birth + count),))
    behind = JobBehind(of_job=job.id, stretches=((birth + count, birth + len(log.records)),))
    await verifier.say(Topic.JOBS_INDEX, JobBehind.key_of(job.id), behind)
    async with verifier.archiving() as archiver:
        await verifier.archived(job)
        await eventually(lambda: archiver.late_s == 0)
    await verifier.start()
    report = await verifier.proofs.verify(job.id, log.tenant)
    assert (report["amended"] is not None) == amended
    verifier.log.delete_below(PLACE, len(log.records))
    assert await verifier.proofs.verify(job.id, log.tenant) == report


async def test_what_amends_a_seal_is_archived_at_once_and_waits_for_nothing_that_anybody_may_write(
    verifier: ArchivingVerifier,
) -> None:
    log = Log()
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    seal(log)
    job = StoredJob(log.job, list(log.records), list(log.records))
    birth = await verifier.store(job)
    await verifier.seal_told(job, birth)

    async def come() -> None:
        there = (await verifier.log.end_offsets([PLACE]))[PLACE] - birth
        await verifier.store(StoredJob(job.id, log.records[there:], log.records[there:]))
        stretch = (birth + len(job.records), birth + len(log.records))
        await verifier.say(Topic.JOBS_INDEX, JobBehind.key_of(job.id), JobBehind(of_job=job.id, stretches=(stretch,)))

    def until() -> int:
        line = verifier.line(job.id)
        return line.until - birth if line is not None else 0

    async with verifier.archiving():
        await verifier.archived(job)
        log.finish("n1", via="late")
        await come()
        await eventually(lambda: until() == len(log.records))
        amend(log)
        await come()
        await eventually(lambda: until() == len(log.records))
        await verifier.late(job)
        marker = await sealed(verifier)
        await verifier.archived(marker)
        assert until() == len(log.records), "what anybody may write waits"
    line, found = verifier.line(job.id), [path for path in verifier.files() if job.id in path.name]
    assert line is not None
    newest = [one.value for one in bundle.contents((verifier.folder / "blobs" / line.path).read_bytes()).records]
    assert len(found) == 3, "nobody deletes what no line names any more"
    for path in found:
        older = [one.value for one in bundle.contents(path.read_bytes()).records]
        assert older == newest[: len(older)], "it has nothing that the newest lacks"
