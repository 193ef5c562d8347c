"""jobs.events lets go of what nobody needs and good bundles have, byte for byte; anything else holds the rest."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aetheris.cli.archive_deletion import SERVICES, ArchivedRecords, Marks, PartitionDeletion, judged
from aetheris.ledger.app import GROUP as LEDGER
from aetheris.planner.app import GROUP as PLANNER
from aetheris.proofs.trust import TrustedKey
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.tool_executor.app import GROUP as EXECUTOR
from aetheris.verifier.app import GROUP as VERIFIER
from tests.testkit.archives import PLACE, ArchivingVerifier
from tests.testkit.evidence import OTHER_KEY
from tests.testkit.stored_jobs import StoredJob, stored_job

FAR = 1_000_000


def marks(at: int = FAR, **others: int) -> Marks:
    return {group: {0: at} for group in SERVICES} | {name: {0: mark} for name, mark in others.items()}


@pytest.fixture
async def verifier(tmp_path: Path) -> ArchivingVerifier:
    verifier = ArchivingVerifier(tmp_path)
    await verifier.start()
    return verifier


async def stored(verifier: ArchivingVerifier) -> StoredJob:
    job = stored_job()
    await verifier.seal_told(job, await verifier.store(job))
    return job


async def archived(verifier: ArchivingVerifier, count: int = 1) -> list[StoredJob]:
    jobs = [await stored(verifier) for _ in range(count)]
    async with verifier.archiving():
        await verifier.archived(*jobs)
    return jobs


async def deletable(verifier: ArchivingVerifier, by: Marks, *keys: TrustedKey) -> PartitionDeletion:
    await verifier.start()
    trusted = keys or verifier.proofs.keys.trusted
    records = ArchivedRecords(verifier.archive, verifier.index, verifier.blobs, trusted)
    return await judged(verifier.log, 0, by, records)


def bundle_of(verifier: ArchivingVerifier, job: StoredJob) -> Path:
    [path] = (verifier.folder / "blobs").glob(f"archive/*/*/{job.id}.*")
    return path


def test_the_groups_are_those_of_the_services_that_start_at_a_mark() -> None:
    assert {PLANNER, LEDGER, EXECUTOR, VERIFIER} == {*SERVICES}


async def test_what_is_archived_and_below_every_mark_may_go(verifier: ArchivingVerifier) -> None:
    jobs = await archived(verifier, 3)
    whole = sum(len(job.records) for job in jobs)
    found = await deletable(verifier, marks())
    assert (found.begin, found.until, found.end) == (0, whole, whole)
    verifier.log.delete_below(PLACE, found.until)
    assert (await deletable(verifier, marks())).until == whole


async def test_a_mark_of_any_group_holds_what_lies_from_there_on(verifier: ArchivingVerifier) -> None:
    await archived(verifier)
    assert (await deletable(verifier, marks(at=5))).until == 5
    found = await deletable(verifier, marks(billing=3))
    assert (found.until, found.held_by) == (3, "billing reads from there")


@pytest.mark.parametrize("missing", SERVICES)
async def test_nothing_goes_while_a_service_has_no_mark(verifier: ArchivingVerifier, missing: str) -> None:
    await archived(verifier)
    found = await deletable(verifier, {group: of for group, of in marks().items() if group != missing})
    assert (found.until, found.held_by) == (0, f"{missing} has no mark there")


async def test_a_job_that_is_not_archived_holds_the_partition(verifier: ArchivingVerifier) -> None:
    [first] = await archived(verifier)
    second = await stored(verifier)
    found = await deletable(verifier, marks())
    assert (found.until, found.held_by) == (len(first.records), f"job {second.id} is not archived")


async def test_a_late_record_that_the_bundle_lacks_holds_the_partition(verifier: ArchivingVerifier) -> None:
    [job] = await archived(verifier)
    at = await verifier.late(job)
    found = await deletable(verifier, marks())
    assert (found.until, found.held_by) == (at, f"the bundle of job {job.id} lacks the record at {at}")


async def test_so_does_one_of_which_the_index_does_not_tell(verifier: ArchivingVerifier) -> None:
    [job] = await archived(verifier)
    await verifier.appender.append([(Draft(PLACE[0], job.id.encode(), b"{}"),)])
    assert (await deletable(verifier, marks())).until == len(job.records)


async def _removed(verifier: ArchivingVerifier, job: StoredJob, _other: StoredJob) -> None:
    bundle_of(verifier, job).unlink()


async def _altered(verifier: ArchivingVerifier, job: StoredJob, _other: StoredJob) -> None:
    path = bundle_of(verifier, job)
    path.write_bytes(path.read_bytes()[:-1] + b"x")


async def _named_as_anothers(verifier: ArchivingVerifier, job: StoredJob, other: StoredJob) -> None:
    line, others = verifier.line(job.id), verifier.line(other.id)
    assert line is not None
    assert others is not None
    forged = line.model_copy(update={"sha256": others.sha256})
    (verifier.folder / "blobs" / forged.path).write_bytes(bundle_of(verifier, other).read_bytes())
    await verifier.say(Topic.JOBS_ARCHIVE, job.id, forged)


@pytest.mark.parametrize(
    ("harm", "code"), [(_removed, "blob_missing"), (_altered, "blob_corrupt"), (_named_as_anothers, "other_job")]
)
async def test_a_bundle_that_is_no_good_holds_its_job(
    verifier: ArchivingVerifier, harm: Callable[[ArchivingVerifier, StoredJob, StoredJob], Awaitable[None]], code: str
) -> None:
    first, second, other = await archived(verifier, 3)
    await harm(verifier, second, other)
    found = await deletable(verifier, marks())
    assert found.until == len(first.records)
    assert found.held_by == f"the bundle of job {second.id} is no good: {code}"


async def test_a_bundle_that_nobody_known_signed_holds_its_job(verifier: ArchivingVerifier) -> None:
    await archived(verifier)
    found = await deletable(verifier, marks(), TrustedKey(OTHER_KEY.public_key()))
    assert (found.until, found.held_by.rpartition(" ")[2]) == (0, "envelope_unknown_key")


async def test_what_kafka_has_otherwise_than_the_bundle_stays(verifier: ArchivingVerifier) -> None:
    [job] = await archived(verifier)
    held = verifier.log.records(Topic.JOBS_EVENTS, 0)
    verifier.log.lose(PLACE)
    again = [Draft(PLACE[0], one.key or b"", one.value + b" " * (at == 4), one.headers) for at, one in enumerate(held)]
    await verifier.appender.append([tuple(again)])
    found = await deletable(verifier, marks())
    assert (found.until, found.held_by) == (4, f"the bundle of job {job.id} lacks the record at 4")


async def test_what_is_no_jobs_holds_nothing_but_a_birth_that_nobody_knows_does(verifier: ArchivingVerifier) -> None:
    await verifier.appender.append([(Draft(PLACE[0], b"policy:barrier", b"{}"),), (Draft(PLACE[0], b"\xff", b"?"),)])
    [job] = await archived(verifier)
    unknown = stored_job()
    await verifier.store(unknown)
    found = await deletable(verifier, marks())
    assert (found.until, found.held_by) == (2 + len(job.records), f"job {unknown.id} is not archived")


async def test_a_copy_of_a_creation_from_before_the_one_that_counts_holds_nothing(verifier: ArchivingVerifier) -> None:
    """It was void where it lay: no bundle has it."""
    job = stored_job()
    first = job.records[0]
    await verifier.appender.append([(Draft(PLACE[0], first.key or b"", first.value, first.headers),)])
    await verifier.seal_told(job, await verifier.store(job))
    async with verifier.archiving():
        await verifier.archived(job)
    found = await deletable(verifier, marks())
    assert (found.until, found.held_by) == (1 + len(job.records), "the log ends there")
