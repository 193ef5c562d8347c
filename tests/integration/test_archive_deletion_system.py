"""200 archived jobs outlive their records in Kafka and every process, and work goes on. Real parts."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.sealed import REACH
from aetheris.protocol.base.topics import Topic
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

JOBS = 200
AT_ONCE = 1000


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {"AETHERIS_ARCHIVE_AFTER_DAYS": "0", "AETHERIS_LISTED_FOR_S": "1"}
    with running_rig(tmp_path_factory.mktemp("deletion"), env) as rig:
        yield rig


def command(rig: Rig, *argv: str) -> Any:
    done = CliRunner().invoke(app, [*argv, "--data", str(rig.system.data), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def deletion(rig: Rig, *options: str) -> dict[int, dict[str, Any]]:
    return {one["partition"]: one for one in command(rig, "archive", "delete", *options)["partitions"]}


def fill(rig: Rig) -> None:
    """Others' records, so that no service needs what lies before."""
    topic = str(Topic.JOBS_EVENTS)
    headers = (("ce_type", b"io.example.filler.v1"),)
    for _, number in rig.system.ends(topic):
        filler = Draft(topic, b"filler:filler", b"{}", headers, number)
        rig.system.write([(filler,) * AT_ONCE for _ in range(REACH // AT_ONCE + 1)])


def test_archived_jobs_outlive_their_records_and_every_process(rig: Rig) -> None:
    system = rig.system
    nodes = [poke("one", fresh("kept"))]
    first = system.api.post("/jobs", json={"plan": {"nodes": nodes}}, headers={"Idempotency-Key": "kept"}).json()
    jobs = [first["job_id"], *(system.submit(poke("one", fresh("many"))) for _ in range(JOBS - 1))]
    system.wait_ended(jobs, 180)
    before = [system.job(job_id) for job_id in jobs]
    archive = system.data / "blobs" / "archive"
    until(lambda: {path.name.split(".")[0] for path in archive.glob("*/*/*.zip")} >= {*jobs}, 240)
    held = deletion(rig, "--dry-run")
    assert {one["until"] for one in held.values()} == {0}, "the marks of who starts are as far back as births reach"
    ends = {number: end for (_, number), end in system.ends(str(Topic.JOBS_EVENTS)).items()}
    fill(rig)
    until(lambda: all(one["until"] >= ends[number] for number, one in deletion(rig, "--dry-run").items()), 120)
    gone = deletion(rig)
    assert all(one["until"] >= ends[number] for number, one in gone.items())
    for number, one in deletion(rig).items():
        assert one["begin"] == gone[number]["until"], "no more than was said"
    with system.all_killed():
        pass
    system.wait_ready(120)
    assert [system.job(job_id) for job_id in jobs] == before
    for job_id in jobs[:: JOBS // 10]:
        assert system.verified(job_id)["seal"]["ok"]
    assert command(rig, "seals", "audit")["ok"]
    again = system.api.post("/jobs", json={"plan": {"nodes": nodes}}, headers={"Idempotency-Key": "kept"})
    assert (again.json()["job_id"], again.json()["status"]) == (jobs[0], "completed")
    last = system.completed(poke("one", fresh("after")))
    system.wait_sealed(last)
    assert system.verified(last)["ok"]
