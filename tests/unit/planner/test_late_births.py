"""Births that came to lie where they do not count are written again; no submission is lost over it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Cancel
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer
from aetheris.testkit.memory import MemoryLog
from tests.testkit.histories import TENANT
from tests.unit.planner.test_planner_backlog import PlannerOnLog, born, events, submit

CANCEL = Cancel(job_id="job-0", by="bob", tenant=TENANT)


class OutOfReach:
    """A planner whose first birth others have overtaken by more records than reach."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        parties = (Party.PLANNER, Party.GATEWAY)
        root = make_installation(folder / "keys", parties, now - timedelta(1), now + timedelta(1))
        held = {party: load_service_key(folder / "keys", party) for party in parties}
        planners, self.gateways = (
            RecordSigner({party: Signer(one.private_key, one.certificate)}, SystemClock())
            for party, one in held.items()
        )
        self.log, self.folder, self.keys = MemoryLog(partitions=1), folder, RecordKeys(frozenset({root}), planners)
        self.planner = self.another()

    def another(self, seen: int = 0) -> PlannerOnLog:
        return PlannerOnLog(self.log, self.folder, seen=seen, keys=self.keys)

    async def fall_behind(self) -> None:
        """It has read nothing of what the others wrote, and takes up a submission."""
        await self.planner.start()
        appender = self.log.appender()
        await appender.start()
        said = ev.StateCheckpointed(job_id="other", state_hash="s", as_of=0)
        one = draft(Topic.JOBS_EVENTS, said, key="other", id="i", source="s", time="")
        await appender.append([(one,) * 1000 for _ in range(REACH // 1000)])
        command = draft(Topic.JOBS_COMMANDS, submit(0), key="job-0", id="c", source="s", time="")
        await appender.append([(self.gateways.message(command),)])
        commands = self.log.records(Topic.JOBS_COMMANDS)
        self.planner.seen[Topic.JOBS_COMMANDS] = len(commands)
        await self.planner.handler.handle({str(Topic.JOBS_COMMANDS): commands})
        assert born(self.log) == ["job-0"]


def as_ofs(log: MemoryLog) -> list[int | None]:
    return [event.as_of for event in events(log) if isinstance(event, ev.JobCreated)]


async def test_a_birth_out_of_reach_is_written_again(tmp_path: Path) -> None:
    case = OutOfReach(tmp_path)
    await case.fall_behind()
    assert case.planner.handler.low_water(Topic.JOBS_COMMANDS) == 0, "its submission is not done with"
    await case.planner.round()
    first, second = as_ofs(case.log)
    assert first == -1
    assert second is not None
    assert second >= REACH
    assert [job_id for job_id, _ in case.planner.handler.live()] == ["job-0"]
    assert case.planner.handler.low_water(Topic.JOBS_COMMANDS) is None


async def test_a_cancel_that_comes_with_a_birth_in_vain_is_kept_for_the_next(tmp_path: Path) -> None:
    case = OutOfReach(tmp_path)
    await case.fall_behind()
    said = draft(Topic.JOBS_COMMANDS, CANCEL, key="job-0", id="stop", source="s", time="")
    await case.planner.appender.append([(case.gateways.message(said),)])
    await case.planner.round()
    assert len(as_ofs(case.log)) == 2
    assert [event.by for event in events(case.log) if isinstance(event, ev.CancelRequested)] == ["bob"]


async def test_a_planner_that_dies_before_leaves_the_submission_to_its_successor(tmp_path: Path) -> None:
    case = OutOfReach(tmp_path)
    await case.fall_behind()
    committed = case.planner.handler.low_water(Topic.JOBS_COMMANDS)
    assert committed is not None
    successor = case.another(committed)
    await successor.start()
    assert list(successor.handler.live()) == []
    await successor.round()
    assert [job_id for job_id, _ in successor.handler.live()] == ["job-0"]
