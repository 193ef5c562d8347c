"""Lines of the index in memory: what is known of an ended job fits 41 bytes, and nothing of it is lost or guessed."""

import asyncio
import hashlib
import uuid

import pytest
from pydantic import ValidationError

from aetheris.protocol.base.records import Draft
from aetheris.protocol.messages.commands import JobIndexEntry, OpenRequest
from aetheris.runtime.log.job_lines import JobLine, JobLines, read_line
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
    ],
)
def test_what_is_put_in_comes_out(job_id: str, line: JobIndexEntry) -> None:
    lines = JobLines()
    lines[job_id] = line.model_dump_json().encode()
    assert read_line(lines[job_id]) == JobLine(line.birth, line.request_hash, line.status, line.requests)
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


def test_an_ended_job_takes_41_bytes() -> None:
    lines = JobLines()
    lines["j"] = entry().model_dump_json().encode()
    assert len(lines["j"]) == 41


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
