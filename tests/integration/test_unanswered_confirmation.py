"""A verifier that does not answer, on the whole system: the job's view says what it waits for, and since when."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    folder = tmp_path_factory.mktemp("unanswered")
    (folder / "files").mkdir()
    own = {"AETHERIS_TOOLS": "tests.testkit.file_tools", "AETHERIS_PROBE_WAIT_S": "1"}
    with running_system(folder / "data", own | {"FILES_ROOT": str(folder / "files")}) as system:
        yield system


@contextmanager
def suspended(pid: int) -> Generator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_job_that_waits_for_a_verifier_says_so_and_goes_on_once_it_answers(system: System) -> None:
    name = fresh("u1")
    first = {"id": "a", "tool": "write_file", "args": {"name": name, "text": "one"}}
    wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}, "depends_on": ["a"]}
    then = {"name": f"{name}.next", "text": {"$ref": "a#/etag"}}
    job = system.submit(first, wait, {"id": "b", "tool": "write_file", "args": then, "depends_on": ["w"]})
    system.wait_status(job, "waiting")
    with suspended(system.pid("prober-0")):
        assert system.api.post(f"/jobs/{job}/signal", json={"correlation_key": "go"}).status_code in (200, 202)
        until(lambda: "b waits for a verifier" in system.job(job).get("why", ""), 30)
        view = system.job(job)
        assert view["status"] == "waiting"
        since = view["why"].partition("asked first at ")[2].partition(",")[0]
        assert datetime.fromisoformat(since).tzinfo is not None
        waiting = system.api.get("/jobs", params={"status": "waiting"}).json()["jobs"]
        assert job in [one["job_id"] for one in waiting]
        (row,) = system.api.get(f"/jobs/{job}/effects").json()["effects"]
        assert row["unanswered"] == {"waits": "b", "since": since}
        (tree,) = system.api.get("/effects", params={"job_id": job}).json()["effects"]
        (open_,) = [one for one in tree["because"] if one["what"] == "confirmation"]
        assert (open_["title"], open_["at"]["type"]) == (view["why"], "job_waiting")
        outcome = CliRunner().invoke(app, ["why", job, "--data", str(system.data)])
        assert (outcome.exit_code, "b waits for a verifier" in outcome.output) == (0, True), outcome.output
    system.wait_ended([job])
    assert system.job(job)["status"] == "completed"
    assert all("unanswered" not in row for row in system.api.get(f"/jobs/{job}/effects").json()["effects"])
    assert Path(system.data).parent.joinpath("files", f"{name}.next").exists()
    system.verified(job)
