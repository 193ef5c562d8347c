"""Sealed jobs become Parquet, each once, whatever becomes of the archiver: rows are counted with DuckDB."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import spawn
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.kafka.admin import delete_below
from aetheris.views.query_rows import COLUMNS
from tests.testkit.attempts import fresh
from tests.testkit.dying_archiver import PLACES
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke, running_rig, wait
from tests.testkit.services import asked

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(900)]

PATIENCE_S = 120.0
JOBS = 10


@dataclass(frozen=True)
class ParquetRig(Rig):
    """Jobs that are sealed, two of which failed; what writes them is started by each test."""

    jobs: tuple[str, ...]
    folder: Path

    def env(self, store: Path, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
        return {
            **kept,
            "AETHERIS_DEV": "1",
            "AETHERIS_KAFKA": self.system.state().kafka,
            "AETHERIS_DATA": str(self.system.data),
            "AETHERIS_PARQUET": str(store),
            "AETHERIS_PARQUET_EVERY_S": "0.1",
            "AETHERIS_WORKER_ID": "archiver-test",
            "ARCHIVER_RANGE": "4",
            **more,
        }

    @contextmanager
    def archiver(self, store: Path, **more: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
        port = free_port()
        argv = (sys.executable, "-m", "tests.testkit.dying_archiver")
        env = self.env(store, AETHERIS_HEALTH_PORT=str(port), **more)
        process = spawn(argv, log=self.folder / f"archiver-{port}.log", env=env)
        try:
            yield process, port
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[ParquetRig]:
    folder = tmp_path_factory.mktemp("parquet")
    with running_rig(folder, {"AETHERIS_ARCHIVE_AFTER_DAYS": "0"}) as started:
        system = started.system
        jobs = [system.submit(poke("one", fresh("a")), poke("two", fresh("a"), "one")) for _ in range(JOBS - 2)]
        refused = {"id": "two", "tool": "poke_refused", "args": {}, "depends_on": ["one"]}
        jobs += [system.submit(poke("one", fresh("b")), refused) for _ in range(2)]
        system.wait_ended(jobs)
        for job_id in jobs:
            system.wait_sealed(job_id)
        yield ParquetRig(system, started.external, tuple(jobs), folder)


def rows(store: Path, table: str, select: str = "*", more: str = "") -> list[Any]:
    if not list(store.glob(f"tenants/*/{table}/*/*.parquet")):
        return []
    files = f"read_parquet('{store}/tenants/*/{table}/*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT {select} FROM {files} {more}").fetchall()  # noqa: S608


def counted(store: Path) -> Mapping[str, int]:
    return dict(rows(store, "jobs", "job_id, count(*)", "GROUP BY 1"))


def whole(rig: ParquetRig, store: Path) -> bool:
    return set(counted(store)) >= set(rig.jobs)


def check_each_once(rig: ParquetRig, store: Path) -> None:
    found = counted(store)
    assert {job: found.get(job) for job in rig.jobs} == dict.fromkeys(rig.jobs, 1)
    for table, key in (("steps", "node_id"), ("effects", "event_id"), ("events", "seq")):
        twice = rows(store, table, f"job_id, {key}, count(*)", "GROUP BY ALL HAVING count(*) > 1")
        assert twice == [], table
    for job in rig.jobs:
        events = {event["seq"] for event in rig.system.events(job) if event["type"] != "job_sealed"}
        assert {seq for (seq,) in rows(store, "events", "seq", f"WHERE job_id = '{job}'")} == events
        effects = rig.system.api.get(f"/jobs/{job}/effects").json()["effects"]
        assert len(rows(store, "effects", "1", f"WHERE job_id = '{job}'")) == len(effects)
        steps = {step["node_id"] for step in rig.system.job(job)["steps"]}
        assert {node for (node,) in rows(store, "steps", "node_id", f"WHERE job_id = '{job}'")} == steps


def test_rows_say_what_the_gateway_says(rig: ParquetRig, tmp_path: Path) -> None:
    with rig.archiver(tmp_path / "store") as (_, port):
        until(lambda: whole(rig, tmp_path / "store"), PATIENCE_S)
        assert asked(port, "/readyz")[0] == 200
    check_each_once(rig, tmp_path / "store")
    for job in rig.jobs:
        said = rig.system.job(job)
        [found] = rows(tmp_path / "store", "jobs", "status, submitted_by, tenant, steps", f"WHERE job_id = '{job}'")
        assert found == (said["status"], said["submitted_by"], said["tenant"], len(said["steps"]))
    columns = [name for name, *_ in rows_described(tmp_path / "store")]
    assert columns == [*COLUMNS["jobs"], "day"]


def rows_described(store: Path) -> list[Any]:
    with duckdb.connect() as connection:
        files = f"read_parquet('{store}/tenants/*/jobs/*/*.parquet', hive_partitioning = true)"
        return connection.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()  # noqa: S608


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_killed_at_each_place_it_writes_each_job_once(rig: ParquetRig, tmp_path: Path, place: str, count: int) -> None:
    with rig.archiver(tmp_path, ARCHIVER_DIES=f"{place}:{count}") as (process, _):
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    with rig.archiver(tmp_path):
        until(lambda: whole(rig, tmp_path), PATIENCE_S)
    check_each_once(rig, tmp_path)


def test_killed_again_and_again_and_two_at_once(rig: ParquetRig, tmp_path: Path) -> None:
    seed = random.randrange(2**32)  # noqa: S311  printed below
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)  # noqa: S311
    for _ in range(6):
        dies = {"ARCHIVER_DIES": f"{dice.choice(PLACES)}:{dice.randint(1, 6)}"}
        with rig.archiver(tmp_path, **dies), rig.archiver(tmp_path, ARCHIVER_RANGE=str(dice.choice((4, 8)))) as other:
            until(lambda: bool(list(tmp_path.glob("ranges/*.json"))), PATIENCE_S)
            os.kill(other[0].pid, signal.SIGKILL)
    with rig.archiver(tmp_path), rig.archiver(tmp_path, ARCHIVER_RANGE="8"):
        until(lambda: whole(rig, tmp_path), PATIENCE_S)
    check_each_once(rig, tmp_path)
    begins = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("ranges/*.json"))]
    assert [one["begin"] for one in begins] == [0, *(one["end"] for one in begins[:-1])]


def test_a_forged_seal_and_a_repeated_one_write_nothing(rig: ParquetRig, tmp_path: Path) -> None:
    lines = [record for record in rig.system.records(Topic.JOBS_SEALS) if b'"event_count"' in record.value]
    ours = next(one for one in lines if json.loads(one.value).get("job_id") == rig.jobs[0])
    said = json.loads(ours.value)
    forged = (
        ours.value,
        json.dumps(said | {"job_id": "invented"}).encode(),
        json.dumps(said | {"event_count": 1}).encode(),
        json.dumps(said | {"key_id": "nobody"}).encode(),
        b"\xff" * 100,
        b"[" * 100_000,
        b"",
    )
    seals = str(Topic.JOBS_SEALS)
    rig.system.write([(Draft(seals, b"x", value, ours.headers, partition=0),) for value in forged])
    last = rig.system.completed(poke("one", fresh("c")))
    rig.system.wait_sealed(last)
    with rig.archiver(tmp_path):
        until(lambda: last in counted(tmp_path), PATIENCE_S)
    check_each_once(rig, tmp_path)
    assert "invented" not in counted(tmp_path)
    assert not any(json.loads(path.read_text())["refused"] for path in tmp_path.glob("ranges/*.json"))


def test_a_query_has_live_and_archived_jobs_each_once(rig: ParquetRig, tmp_path: Path) -> None:
    with rig.archiver(tmp_path):
        until(lambda: whole(rig, tmp_path), PATIENCE_S)
    waiting = rig.system.submit(poke("one", fresh("d")), wait("more", "go", "one"))
    rig.system.wait_status(waiting, "waiting")
    later = rig.system.completed(poke("one", fresh("e")))
    rig.system.wait_sealed(later)
    asking = ("sql", "--data", str(rig.system.data), "--parquet", str(tmp_path), "--json")
    query = "SELECT job_id, live, status, steps, effects, events FROM jobs"
    done = CliRunner().invoke(app, [*asking, query])
    assert done.exit_code == 0, done.output
    found = {one["job_id"]: one for one in json.loads(done.stdout)}
    assert len(found) == len(json.loads(done.stdout))
    assert {*rig.jobs, waiting, later} <= found.keys()
    assert {job for job, one in found.items() if one["live"]} >= {waiting, later}
    assert not any(found[job]["live"] for job in rig.jobs)
    assert (found[waiting]["status"], found[later]["status"]) == ("waiting", "completed")
    with rig.archiver(tmp_path):
        until(lambda: later in counted(tmp_path), PATIENCE_S)
    done = CliRunner().invoke(app, [*asking, query])
    again = {one["job_id"]: one for one in json.loads(done.stdout)}
    assert again[later] == found[later] | {"live": False}, "the same rows of the same records"
    limited = CliRunner().invoke(app, [*asking, "--live-limit", "0", query])
    assert (limited.exit_code, "too_many_live" in limited.output) == (1, True)
    other = CliRunner().invoke(app, [*asking, "--tenant", "another", query])
    assert (other.exit_code, "other_tenant" in other.output) == (2, True)
    rig.system.signal(waiting, "go")


def test_a_job_that_kafka_has_let_go_of_is_written_out_of_the_archive(rig: ParquetRig, tmp_path: Path) -> None:
    archive = rig.system.data / "blobs" / "archive"
    until(lambda: {path.name.split(".")[0] for path in archive.glob("*/*/*.zip")} >= {*rig.jobs}, PATIENCE_S)
    ends = rig.system.ends(str(Topic.JOBS_EVENTS))
    asyncio.run(delete_below(rig.system.state().kafka, {place: end for place, end in ends.items() if end}))
    [held] = archive.glob(f"*/*/{rig.jobs[0]}.*.zip")
    away = held.rename(tmp_path / "away.zip")
    with rig.archiver(tmp_path / "store") as (_, port):
        until(lambda: asked(port, "/readyz")[1].get("unready", {}).get("parquet") == "archive_missing", PATIENCE_S)
        away.rename(held)
        until(lambda: whole(rig, tmp_path / "store"), PATIENCE_S)
        assert asked(port, "/readyz")[0] == 200
    check_each_once(rig, tmp_path / "store")
