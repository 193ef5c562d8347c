"""Lines of the index in memory: an ended job takes some 40 bytes, and nothing of it is lost or guessed."""

import asyncio
import hashlib
import uuid
from dataclasses import replace

import pytest
from pydantic import ValidationError

from aetheris.protocol.base.records import Draft
from aetheris.protocol.messages.commands import JobBehind, JobIndexEntry, OpenRequest
from aetheris.runtime.log.job_lines import JobLine, JobLines, line_of, read_line
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryLog, MemoryReader

HASH = hashlib.sha256(b"a").hexdigest()
REQUEST = OpenRequest(id="r", node_id="a", kind="human", title="?", offset=1, created_at="2026-01-01T00:00:00Z")


def entry(status: str = "completed", **more: object) -> JobIndexEntry:
    line = {"job_id": "j", "birth": 7, "request_hash": HASH, "status": status, "tenant": "t", "submitted_by": "ann"}
    return JobIndexEntry.model_validate(line | {"created_at": "2026-01-01T00:00:00Z"} | more)


_UUID = uuid.UUID("43cfe084-35e8-48d0-b4a3-06b917da8b5b")


@pytest.mark.parametrize("job_id", ["j", str(_UUID), str(_UUID).upper(), _UUID.hex])
@pytest.mark.parametrize(
    "line",
    [
        *(entry(status) for status in ("completed", "failed", "cancelled", "running", "waiting", "submitted")),
        entry(requests=(REQUEST,)),
        entry(request_hash="no hash"),
        entry(request_hash=HASH.upper()),
        entry(birth=2**62),
        entry(birth=0),
        entry(stretches=((7, 40),)),
        entry(stretches=((7, 8), (5000, 5001), (2**40, 2**40 + 10**6))),
    ],
)
def test_what_is_put_in_comes_out(job_id: str, line: JobIndexEntry) -> None:
    lines = JobLines()
    lines[job_id] = line.model_dump_json().encode()
    assert read_line(lines[job_id]) == JobLine(
        line.birth, line.request_hash, line.status, line.requests, stretches=line.stretches
    )
    assert list(lines) == [job_id]


def test_a_later_line_replaces_an_earlier_one_and_a_tombstone_takes_it_away() -> None:
    lines = JobLines()
    for status in ("running", "completed"):
        lines["j"] = entry(status).model_dump_json().encode()
    assert (read_line(lines["j"]).status, len(lines)) == ("completed", 1)
    lines.pop("j", None)
    assert "j" not in lines
    with pytest.raises(KeyError):
        del lines["j"]


def test_what_is_no_line_is_an_error_for_whoever_asks_and_never_an_unknown_job() -> None:
    lines = JobLines()
    lines["j"] = b"garbage"
    with pytest.raises(ValidationError):
        read_line(lines["j"])


@pytest.mark.parametrize("creation_offset", [7, 10**6, 2**35 - 1])
def test_a_sealed_job_takes_no_more_than_41_bytes(creation_offset: int) -> None:
    lines = JobLines()
    lines["j"] = (
        entry(birth=creation_offset, stretches=((creation_offset, creation_offset + 2**14 - 1),))
        .model_dump_json()
        .encode()
    )
    assert len(lines["j"]) <= 41


@pytest.mark.parametrize("lying", [((8, 9),), ((7, 9), (8, 10)), ((7, 7),), ((7, -1),)])
def test_stretches_that_can_not_be_say_nothing(lying: tuple[tuple[int, int], ...]) -> None:
    lines = JobLines()
    lines["j"] = entry(stretches=lying).model_dump_json().encode()
    assert read_line(lines["j"]).stretches == ()


def test_what_came_behind_the_seal_is_a_row_of_its_own() -> None:
    lines = JobLines()
    behind = JobBehind(of_job="j", stretches=((90, 91), (4000, 4002)))
    lines[JobBehind.key_of("j")] = behind.model_dump_json().encode()
    lines["j"] = entry(stretches=((7, 40),)).model_dump_json().encode()
    lines["k"] = entry(stretches=((7, 40),)).model_dump_json().encode()
    found = line_of(lines.get, "j")
    assert found is not None
    assert (found.stretches, found.behind) == (((7, 40),), behind.stretches)
    assert (line_of(lines.get, "k"), line_of(lines.get, "nobody")) == (replace(found, behind=()), None)
    assert line_of(lines.get, JobBehind.key_of("j")) is None


@pytest.mark.parametrize("garbage", [b"\xf8", b"\xf8" + bytes(32), b"\xf9" + bytes(32) + b"\x80", b"\xfa" + bytes(34)])
def test_what_only_looks_packed_is_an_error_too(garbage: bytes) -> None:
    lines = JobLines()
    lines["j"] = garbage
    with pytest.raises(ValueError, match=r"no line of jobs.index|shorter"):
        read_line(lines["j"])


class Mute(MemoryLog):
    """Its readers deliver nothing."""

    def reader(self, max_wait_s: float = 0.1) -> MemoryReader:
        made = super().reader(max_wait_s)
        made.silent = True
        return made


async def test_a_table_that_nothing_comes_of_is_given_up() -> None:
    log = Mute(1)
    appender = log.appender()
    await appender.start()
    await appender.append([(Draft("t", b"k", b"v"),)])
    table = Table(log, "t")
    with pytest.raises(TimeoutError, match="nothing was read"):
        await asyncio.wait_for(table.load(0.3), 20)
    assert table.unready() == "loading t: 0 of 1 records"
