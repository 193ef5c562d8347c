"""A log whose jobs lie elsewhere than their index says is told from one that lost some, and from a line that lies."""

import pytest

from aetheris.cli.backup.birth_places import LOOKED_AT, BirthPlaces
from aetheris.cli.console import CommandError
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry

CREATED = (("ce_type", b"io.aetheris.job_created.v1"),)
JOBS = 3 * LOOKED_AT


def line(job: int, birth: int, lies_in: int | None = None) -> Record:
    said = JobIndexEntry(
        job_id=f"j{job}",
        birth=birth,
        request_hash="r",
        status="completed",
        tenant="t",
        submitted_by="ann",
        created_at="2026-01-01T00:00:00Z",
        partition=lies_in,
    )
    return Record(Topic.JOBS_INDEX, 0, job, 0, said.job_id.encode(), (), said.model_dump_json().encode())


def birth(job: int, offset: int, lies_in: int = 0) -> Record:
    return Record(Topic.JOBS_EVENTS, lies_in, offset, 0, f"j{job}".encode(), CREATED, b"{}")


def judged(lines: list[Record], births: list[Record]) -> None:
    places = BirthPlaces()
    for one in lines:
        places.index_says(one)
    for one in births:
        places.lies(one)
    places.check()


LINES = [line(job, 10 * job) for job in range(JOBS)]


@pytest.mark.parametrize("shifted_from", [0, JOBS - LOOKED_AT // 2 - 1])
@pytest.mark.parametrize("by", [1, -7, 1000])
def test_a_shifted_log_is_refused_from_wherever_it_is_shifted(shifted_from: int, by: int) -> None:
    births = [birth(job, 10 * job + by * (job >= shifted_from)) for job in range(JOBS)]
    with pytest.raises(CommandError) as refused:
        judged(LINES, births)
    assert refused.value.code == "other_offsets"


def test_where_it_should_be_it_is_taken_and_so_it_is_where_some_is_gone() -> None:
    births = [birth(job, 10 * job) for job in range(JOBS)]
    judged(LINES, births)
    judged(LINES, births[: JOBS // 2])  # cut: what is gone says nothing
    judged(LINES, births[JOBS // 2 :])  # its beginning was let go of
    judged(LINES, [])
    judged([], births)
    judged(LINES, [*births, birth(JOBS - 1, 10 * JOBS)])  # a creation that came again


def test_who_writes_lines_of_his_own_keeps_nobody_from_restoring() -> None:
    strange = Record(Topic.JOBS_INDEX, 0, 99, 0, b"x", (), b"\xff" * 100)
    lies = [line(job, 7) for job in range(LOOKED_AT // 2 - 1)]
    judged([*LINES, strange, *lies], [birth(job, 10 * job) for job in range(JOBS)])


def test_of_a_partition_that_was_cut_the_index_forgets_jobs_that_are_not_there() -> None:
    places = BirthPlaces({0: 100})  # below that Kafka has let go of them
    lines = [line(job, 10 * job) for job in range(30)]
    for one in lines:
        places.index_says(one)
    for job in range(10, 20):
        places.lies(birth(job, 10 * job))
    strange = Record(Topic.JOBS_INDEX, 0, 99, 0, b"j25:behind", (), b'{"of_job": "j25", "stretches": []}')
    found = list(places.known([*lines, strange]))
    assert [one.offset for one in found] == [one.offset for one in (*lines, strange)], "each in its place"
    kept = {one.key for one in found if one.value}
    assert kept == {f"j{job}".encode() for job in range(20)} | {b"j25:behind"}


def test_a_job_of_a_log_that_grew_is_looked_for_where_it_lies() -> None:
    lines = [line(job, 10 * job, 5) for job in range(JOBS)]
    judged(lines, [birth(job, 10 * job, 5) for job in range(JOBS)])
    with pytest.raises(CommandError):
        judged(lines, [birth(job, 10 * job + 1, 5) for job in range(JOBS)])


@pytest.mark.parametrize(("cut", "gone"), [(5, {b"j2"}), (0, set[bytes]()), (7, set[bytes]())])
def test_of_a_log_that_grew_the_index_forgets_what_is_not_where_it_lay(cut: int, gone: set[bytes]) -> None:
    places = BirthPlaces({cut: 0})
    lines = [line(0, 10), line(1, 10, 5), line(2, 30, 5)]
    for one in lines:
        places.index_says(one)
    for one in (birth(0, 10), birth(1, 10, 5)):
        places.lies(one)
    assert {one.key for one in places.known(lines) if not one.value} == gone
