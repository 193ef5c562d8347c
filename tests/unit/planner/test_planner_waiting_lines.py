"""Lines of jobs.index go along with what jobs wait for, or by themselves a moment later; none is lost."""

from pathlib import Path

from aetheris.planner.core.waiting_lines import WITHIN_S
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.envelope import Envelope, decode_message
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import SEAL
from tests.unit.planner.test_planner_backlog import PlannerOnLog, ended, submit, write


def line(record: Record) -> tuple[str, str]:
    found = decode_message(record)
    assert isinstance(found, Envelope)
    assert isinstance(found.body, JobIndexEntry)
    return found.body.job_id, found.body.status


async def test_a_line_goes_along_or_by_itself_a_moment_later(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    planner = PlannerOnLog(log, tmp_path)
    await planner.start()
    await write(log, Topic.JOBS_COMMANDS, submit(0))
    await planner.round()
    assert [line(one) for one in log.records(Topic.JOBS_INDEX)] == [("job-0", "running")]
    assert len(log.records(Topic.TOOLS_REQUESTS)) == 1
    await write(log, Topic.JOBS_EVENTS, *ended(0))
    await planner.round()
    assert len(log.records(Topic.JOBS_INDEX)) == 1
    assert planner.calls[-1] == WITHIN_S
    assert ("job-0", 0) in planner.handler.live()
    await planner.handler.tick()
    assert line(log.records(Topic.JOBS_INDEX)[-1]) == ("job-0", "completed")
    await write(log, Topic.JOBS_COMMANDS, submit(1))
    await planner.round()
    await write(log, Topic.JOBS_EVENTS, *ended(1))
    await planner.round()
    await write(log, Topic.JOBS_COMMANDS, submit(2))
    await planner.round()
    assert ("job-1", "completed") in [line(one) for one in log.records(Topic.JOBS_INDEX)]


async def test_whoever_dies_before_a_line_is_written_leaves_its_job_to_be_read_again(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    first = PlannerOnLog(log, tmp_path)
    await first.start()
    await write(log, Topic.JOBS_COMMANDS, submit(0))
    await first.round()
    birth = log.records(Topic.JOBS_EVENTS)[0].offset
    await write(log, Topic.JOBS_EVENTS, *ended(0), SEAL.model_copy(update={"job_id": "job-0"}))
    await first.round()
    assert list(first.handler.live()) == [("job-0", birth)], "forgotten, but for its line"
    assert [line(one) for one in log.records(Topic.JOBS_INDEX)] == [("job-0", "running")]
    successor = PlannerOnLog(log, tmp_path, seen=1)
    await successor.start()
    await successor.round()
    assert line(log.records(Topic.JOBS_INDEX)[-1]) == ("job-0", "completed")
    assert not list(successor.handler.live())
