"""Lines of jobs.archive: what is no line says nothing, and takes nothing away."""

import json

import pytest

from aetheris.runtime.log.archive_lines import ArchiveLines, archived_job

JOB = "job-1"
GOOD = {"job_id": JOB, "tenant": "acme", "month": "2026-11", "sha256": "a" * 64, "until": 44}


def line(**other: object) -> bytes:
    return json.dumps({**GOOD, **other}).encode()


BROKEN = {
    "no JSON": b"\xff",
    "a number": b"7",
    "empty": b"{}",
    "of another job": line(job_id="job-2"),
    "a hash that is none": line(sha256="a" * 63),
    "a hash as a number": line(sha256=7),
    "a month that leads elsewhere": line(month="../../x"),
    "up to nothing": line(until=0),
    "up to a text": line(until="much"),
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_a_broken_line_says_nothing_and_takes_nothing_away(value: bytes) -> None:
    lines = ArchiveLines()
    lines[JOB] = value
    assert archived_job(lines.get, JOB) is None
    lines[JOB] = line()
    lines[JOB] = value
    known = archived_job(lines.get, JOB)
    assert known is not None
    assert known.model_dump() == GOOD


def test_a_tenant_may_be_any_text() -> None:
    lines = ArchiveLines()
    lines[JOB] = line(tenant="a b\n ü")
    known = archived_job(lines.get, JOB)
    assert known is not None
    assert known.tenant == "a b\n ü"
    assert ".." not in known.path
