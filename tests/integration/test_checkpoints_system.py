"""One job waits, thousands of records of others follow: a restart reads its checkpoint, and the log from the mark."""

import json
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.log.partitioning import partition_of
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

EVERY = 300
PATIENCE_S = 120.0
TOLD = [2, 1]
"""Effects under the tag of the first step, and of the second: the third has its tag from what the first returned."""
PARTS = ("planner-0", "ledger-0", "executor-0", "verifier-0")


@dataclass(frozen=True)
class CheckpointRig(Rig):
    """Its services write a checkpoint every `EVERY` records."""

    def restores(self, part: str) -> list[dict[str, Any]]:
        """What a part has said of its restarts, in its own log."""
        text = (self.system.data / "logs" / f"{part}.log").read_text()
        return [json.loads(line) for line in text.splitlines() if '"restored"' in line]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[CheckpointRig]:
    env = {"AETHERIS_CHECKPOINT_EVERY": str(EVERY)}
    with running_rig(tmp_path_factory.mktemp("checkpoints"), env) as rig:
        yield CheckpointRig(rig.system, rig.external)


def waiting(tag: str) -> list[dict[str, Any]]:
    """Pays, waits for a signal, and pays again with what the first payment returned."""
    return [
        {"id": "first", "tool": "poke_probeable", "args": {"tag": f"{tag}-first"}},
        {"id": "word", "kind": "wait", "wait": {"key": "go"}, "depends_on": ["first"]},
        {
            "id": "second",
            "tool": "poke_probeable",
            "args": {"tag": f"{tag}-second", "hold": ""},
            "depends_on": ["word", "first"],
        },
        {
            "id": "third",
            "tool": "poke_idempotent",
            "args": {"tag": {"$ref": "first#/poked"}},
            "depends_on": ["second"],
        },
    ]


def others(rig: CheckpointRig, partition: int, records: int) -> None:
    """The log of the partition grows by so many records, all of jobs that end."""
    place = (str(Topic.JOBS_EVENTS), partition)
    until_end = rig.system.ends(Topic.JOBS_EVENTS)[place] + records
    while rig.system.ends(Topic.JOBS_EVENTS)[place] < until_end:
        steps = [{"id": f"s{n}", "tool": "poke_pure", "args": {"tag": f"{n}"}} for n in range(40)]
        jobs = [rig.system.submit(*steps) for _ in range(40)]
        rig.system.wait_ended(jobs, PATIENCE_S)


def pieces(rig: CheckpointRig, topic: Topic, partition: int) -> int:
    return rig.system.ends(topic)[str(topic), partition]


def test_a_restart_reads_only_from_within_reach_of_the_mark_and_the_job_goes_on(rig: CheckpointRig) -> None:
    system = rig.system
    tag = uuid.uuid4().hex
    job = system.submit(*waiting(tag))
    system.wait_status(job, "waiting", PATIENCE_S)
    partition = partition_of(job, 4)
    others(rig, partition, REACH + 8 * EVERY)
    for topic in (Topic.PLANNER_CHECKPOINTS, Topic.LEDGER_CHECKPOINTS, Topic.AUDIT_CHECKPOINTS):
        until(lambda topic=topic: pieces(rig, topic, partition) > 0, PATIENCE_S)
    for part in PARTS:
        body = _restarted(rig, part, partition)
        assert body["known"] > 0, body
        assert body["read"] < REACH + 4 * EVERY, body
        assert body["start"] > 4 * EVERY, body
    assert system.signal(job, "go", 1).status_code == 200
    system.wait_ended([job], PATIENCE_S)
    assert system.job(job)["status"] == "completed"
    system.verified(job)
    assert sum("state_checkpointed" in one for one in system.types(job)) == 1
    assert [rig.external.count(one) for one in (f"{tag}-first", f"{tag}-second")] == TOLD


def _restarted(rig: CheckpointRig, part: str, partition: int) -> dict[str, Any]:
    before = len(rig.restores(part))
    rig.system.kill(part)
    rig.system.wait_ready(PATIENCE_S)

    def of_partition() -> dict[str, Any] | None:
        return next((one for one in rig.restores(part)[before:] if one["partition"] == partition), None)

    until(lambda: of_partition() is not None, PATIENCE_S)
    return of_partition() or {}


def test_kills_while_checkpoints_are_written_leave_no_false_one(rig: CheckpointRig) -> None:
    system = rig.system
    tags = [uuid.uuid4().hex for _ in range(4)]
    jobs = [system.submit(*waiting(tag)) for tag in tags]
    for job in jobs:
        system.wait_status(job, "waiting", PATIENCE_S)
    before = system.ends(Topic.PLANNER_CHECKPOINTS)
    for part in ("planner-0", "verifier-0", "planner-0", "ledger-0", "planner-0"):
        others(rig, partition_of(jobs[0], 4), EVERY)
        system.kill(part)
    system.wait_ready(PATIENCE_S)
    assert system.ends(Topic.PLANNER_CHECKPOINTS) != before
    for part in PARTS:
        system.kill(part)
    system.wait_ready(PATIENCE_S)
    for job in jobs:
        reported = system.signal(job, "go", 1)
        assert reported.status_code in (200, 202), reported.text
    system.wait_ended(jobs, PATIENCE_S)
    for tag, job in zip(tags, jobs, strict=True):
        assert system.job(job)["status"] == "completed"
        system.verified(job)
        assert [rig.external.count(f"{tag}-{step}") for step in ("first", "second")] == TOLD
