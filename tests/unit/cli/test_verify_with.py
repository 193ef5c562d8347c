"""`aetheris verify PARENT --with CHILD`: bundles of jobs that began each other, held against each other, offline."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.proofs import RawRecord
from aetheris.testing import MemorySystem
from tests.testkit.evidence import bundle_of, redacted_of
from tests.testkit.memory_jobs import Body, sealed_jobs
from tests.testkit.standalone import SCRIPT
from tests.unit.testing.test_child_jobs import pay, refuses, repay, ship, shop


def ran(orders: list[str]) -> MemorySystem:
    system = MemorySystem(shop, ship, pay, repay, refuses)
    system.run(shop.plan(orders=orders))
    return system


@pytest.fixture
def jobs() -> list[list[RawRecord]]:
    """A parent, and its two children."""
    return list(sealed_jobs(ran(["a"])).values())


def files(folder: Path, jobs: list[list[RawRecord]]) -> list[Path]:
    paths = [folder / f"{at}.zip" for at in range(len(jobs))]
    for path, records in zip(paths, jobs, strict=True):
        path.write_bytes(bundle_of(records))
    return paths


def by_script(path: Path, *beside: Path) -> tuple[int, dict[str, Any]]:
    given = [part for one in beside for part in ("--with", str(one))]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), "--self-signed", *given], capture_output=True, text=True, check=False
    )
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {}


def check(path: Path, *beside: Path) -> tuple[int, dict[str, Any]]:
    given = [part for one in beside for part in ("--with", str(one))]
    shown = CliRunner().invoke(app, ["verify", str(path), "--json", "--self-signed", *given])
    return shown.exit_code, json.loads(shown.stdout or shown.stderr)


def test_jobs_that_say_the_same_hold_whichever_is_asked_about(tmp_path: Path, jobs: list[list[RawRecord]]) -> None:
    parent, *children = files(tmp_path, jobs)
    code, report = check(parent, *children)
    assert (code, report["ok"], report["violations"]) == (0, True, [])
    assert [one["ok"] for one in report["with"]] == [True, True]
    assert [one["shown"] for one in report["begun"]] == [True, True]
    code, report = check(children[0], parent)
    assert (code, report["begun"]) == (0, [])


def test_a_child_that_is_not_given_is_said_to_be_missing(tmp_path: Path, jobs: list[list[RawRecord]]) -> None:
    parent, child, other = files(tmp_path, jobs)
    code, report = check(parent, child)
    assert code == 0
    assert [one["shown"] for one in report["begun"]] == [True, False]
    text = CliRunner().invoke(app, ["verify", str(parent), "--self-signed", "--with", str(child)]).stdout
    assert f"1 jobs that it has begun, of which nothing is shown: {report['begun'][1]['job_id']}" in text
    assert other.exists()


def test_a_parent_that_says_another_result_does_not_hold(tmp_path: Path) -> None:
    def pays_more(kind: str, body: Body) -> None:
        if kind == "signal_received" and body["payload"].get("result") == "paid a":
            body["payload"]["result"] = "paid more"

    system = ran(["a"])
    parent, child, _ = files(tmp_path, list(sealed_jobs(system, {system.jobs[0].job_id: pays_more}).values()))
    assert check(parent)[0] == 0, "by itself nothing of it is wrong"
    code, report = check(parent, child)
    assert (code, report["ok"]) == (1, False)
    assert {(one["rule"], one["job_id"]) for one in report["violations"]} == {("child_end", system.jobs[0].job_id)}


def test_a_child_that_does_not_hold_by_itself_is_named(tmp_path: Path, jobs: list[list[RawRecord]]) -> None:
    parent, child, _ = files(tmp_path, jobs)
    child.write_bytes(child.read_bytes()[:-1] + b"x")
    code, report = check(parent, child)
    assert (code, report["with"][0]["ok"]) == (1, False)
    assert report["violations"]


def test_what_can_t_be_held_against_another_is_refused(tmp_path: Path, jobs: list[list[RawRecord]]) -> None:
    parent, child, _ = files(tmp_path, jobs)
    assert check(parent, parent)[0] == 2
    redacted = tmp_path / "redacted.zip"
    redacted.write_bytes(redacted_of(jobs[1], "job_completed"))
    code, report = check(parent, redacted)
    assert (code, report["error"]["details"]["field"]) == (2, "--with")
    assert check(redacted, child)[0] == 2
    assert check(Path("some-job"), child)[0] == 2


def test_the_script_says_the_same_of_jobs_beside_each_other(tmp_path: Path) -> None:
    def pays_more(kind: str, body: Body) -> None:
        if kind == "signal_received" and body["payload"].get("result") == "paid a":
            body["payload"]["result"] = "paid more"

    system = ran(["a"])
    good, forged = tmp_path / "good", tmp_path / "forged"
    for folder in (good, forged):
        folder.mkdir()
    whole = files(good, list(sealed_jobs(system).values()))
    lying = files(forged, list(sealed_jobs(system, {system.jobs[0].job_id: pays_more}).values()))
    for paths in (whole, whole[:2], [whole[1], whole[0]], lying[:2]):
        (code, own), (other_code, other) = check(*paths), by_script(*paths)
        assert (other_code, other["with"], other["begun"]) == (code, own["with"], own["begun"])
        said = [{(one["rule"], one.get("job_id")) for one in report["violations"]} for report in (own, other)]
        assert said[0] == said[1]
    assert by_script(whole[0], whole[0])[0] == 2
    redacted = tmp_path / "redacted.zip"
    redacted.write_bytes(redacted_of(list(sealed_jobs(system).values())[1], "job_completed"))
    assert by_script(whole[0], redacted)[0] == 2
    lying[1].write_bytes(lying[1].read_bytes()[:-1] + b"x")
    code, report = by_script(whole[0], lying[1])
    assert (code, report["with"][0]["ok"]) == (1, False)
