"""S3 through the whole system: large results as its objects, and objects that tools put; the executor is killed."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.runtime.process.crash import ORDERED, VARIABLE
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import wait
from tests.testkit.s3 import BUCKET, S3, running_s3
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(240)]

PREFIX = "aetheris/blobs"
TIMES = 30_000


@dataclass(frozen=True)
class S3Rig:
    """A system that keeps its blobs, and the effects of its tools, on `s3`."""

    system: System
    s3: S3
    folder: Path

    def api_of(self, job: str, what: str) -> httpx.Response:
        return self.system.api.get(f"/jobs/{job}/{what}")

    def cli(self, *argv: str, s3: bool = True) -> tuple[int, dict[str, Any]]:
        """Exit status and JSON of a command; without `s3` it knows of no store and of no system."""
        blobs = {**self.s3.env, "AETHERIS_BLOBS": f"s3://{BUCKET}/{PREFIX}"}
        data = self.system.data if s3 else self.folder / "empty"
        env = blobs if s3 else dict.fromkeys(blobs)
        ran = CliRunner().invoke(app, [*argv, "--json", "--data", str(data)], env=env)
        return ran.exit_code, json.loads(ran.stdout or ran.stderr)


def blob(sha256: str) -> str:
    return f"{PREFIX}/{sha256[:2]}/{sha256}"


def make(node: str, word: str, *after: str) -> dict[str, Any]:
    return {"id": node, "tool": "large", "args": {"word": word, "times": TIMES}, "depends_on": list(after)}


def put(node: str, key: str, text: Any, *after: str, **more: Any) -> dict[str, Any]:
    args = {"key": key, "text": text, **more}
    return {"id": node, "tool": "put_object", "args": args, "depends_on": list(after)}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Rig]:
    folder = tmp_path_factory.mktemp("s3")
    with running_s3(folder / "s3") as s3:
        env = {
            **s3.env,
            "AETHERIS_TOOLS": "tests.testkit.s3_tools",
            "AETHERIS_BLOBS": f"s3://{BUCKET}/{PREFIX}",
            VARIABLE: ORDERED,
            "S3_BUCKET": BUCKET,
        }
        with running_system(folder / "data", env) as system:
            yield S3Rig(system, s3, folder)


@pytest.mark.parametrize("place", ["in_call", "after_call"])
def test_a_put_whose_executor_dies_leaves_one_version(rig: S3Rig, place: str) -> None:
    key = f"kept/{fresh(place)}"
    rig.system.die_at(f"{place}:put_object")
    job = rig.system.completed(put("a", key, "one"))
    assert rig.system.has_died()
    assert rig.s3.versions(key) == 1
    held = rig.s3.client.get_object(Bucket=BUCKET, Key=key)
    assert (held["Body"].read(), held["Metadata"]["aetheris"]) == (b"one", f"aetheris:{job}:a:0")
    assert rig.system.report(job)["ok"]
    assert rig.system.api.post(f"/jobs/{job}/reconcile").json()["ok"]
    rig.s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"somebody else's")
    compared = rig.system.api.post(f"/jobs/{job}/reconcile").json()
    assert [set(one["detail"]) for one in compared["effects"]] == [{"sha256"}]


def test_a_request_that_is_still_on_its_way_when_its_executor_dies(rig: S3Rig) -> None:
    key = fresh("late")
    rig.s3.freeze()
    try:
        job = rig.system.submit(put("a", key, "one"), put("b", key, "two", "a", was={"$ref": "a#/etag"}))
        until(lambda: bool(rig.system.events(job, "tool_invocation_started")), 30)
        rig.system.kill("executor-0")
    finally:
        rig.s3.thaw()
    rig.system.wait_ended([job])
    assert rig.system.job(job)["status"] == "completed"
    assert rig.s3.versions(key) == 2


def test_a_job_is_sealed_when_its_large_result_can_be_asked_for_again(rig: S3Rig) -> None:
    job = rig.system.submit(make("a", "klmno"), wait("w", "go", "a"))
    rig.system.wait_status(job, "waiting")
    rig.s3.deny("s3:GetObject")
    try:
        rig.system.signal(job, "go").raise_for_status()
        rig.system.wait_ended([job])
        small = rig.system.completed({"id": "a", "tool": "large", "args": {"word": "a", "times": 1}})
        rig.system.wait_sealed(small)
        assert rig.system.events(job, "job_sealed") == []
        answer = rig.api_of(job, "verify")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "blobs_unreachable")
        assert "AccessDenied" in answer.json()["error"]["message"]
    finally:
        rig.s3.deny()
    rig.system.wait_sealed(job)
    assert (rig.system.report(job)["ok"], rig.system.events(job, "violation_found")) == (True, [])


def test_large_results_lie_on_s3_and_are_proven(rig: S3Rig) -> None:
    key, word, other = fresh("large"), fresh("")[-5:], fresh("")[-5:]
    rig.system.die_at("after_call:large")
    job = rig.system.completed(make("a", word), put("b", key, {"$ref": "a#/text"}, "a"), make("c", other, "b"))
    assert rig.system.has_died()
    finished = rig.system.events(job, "tool_invocation_finished")
    refs = {one["data"]["node_id"]: one["data"]["result_ref"] for one in finished if one["data"].get("result_ref")}
    assert set(refs) == {"a", "c"}, finished
    first, last = (refs[node]["sha256"] for node in "ac")
    assert (rig.s3.versions(blob(first)), rig.s3.versions(blob(last))) == (1, 1)
    assert not (rig.system.data / "blobs").exists()
    assert rig.s3.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == word.encode() * TIMES
    rig.system.wait_sealed(job)
    again = rig.system.completed(make("a", word))
    assert (rig.s3.versions(blob(first)), rig.system.report(again)["violations"]) == (1, [])
    assert rig.system.report(job)["ok"]
    bundle, stream = str(rig.folder / "job.zip"), str(rig.folder / "job.jsonl")
    assert rig.cli("export", job, "--out", bundle)[0] == 0
    assert rig.cli("export", job, "--stream", "--out", stream)[0] == 0
    assert rig.cli("verify", stream)[0] == 0
    replayed = rig.api_of(job, "replay").json()
    assert (replayed["ok"], replayed["unchecked"]) == (True, 0)

    held = rig.s3.client.get_object(Bucket=BUCKET, Key=blob(last))["Body"].read()
    reported = next(one["id"] for one in finished if one["data"]["node_id"] == "c")
    rig.s3.client.delete_object(Bucket=BUCKET, Key=blob(last))
    assert found(rig.system.report(job)) == [("missing_blob", reported)]
    for argv in (["verify", job], ["verify", job, "--from-log"], ["verify", stream]):
        code, report = rig.cli(*argv)
        assert (code, found(report)) == (1, [("missing_blob", reported)])
    assert rig.api_of(job, "evidence").status_code == 409
    rig.s3.client.put_object(Bucket=BUCKET, Key=blob(last), Body=held[:-1])
    assert found(rig.system.report(job)) == [("blob_mismatch", reported)]
    rig.s3.client.put_object(Bucket=BUCKET, Key=blob(last), Body=held)
    assert rig.system.report(job)["ok"]

    rig.s3.kill()  # the end of this file's store: what fails from here on has no second chance
    for what in ("verify", "replay", "evidence"):
        answer = rig.api_of(job, what)
        assert (answer.status_code, "blobs_unreachable" in answer.text) == (503, True), (what, answer.text[:1000])
    for argv in (["verify", job], ["verify", stream]):
        code, told = rig.cli(*argv)
        assert (code, told["error"]["code"]) == (5, "blobs_unreachable"), (argv, told)
    assert rig.cli("verify", bundle, "--self-signed", s3=False)[0] == 0
    code, replayed = rig.cli("replay", bundle, s3=False)
    assert (code, replayed["ok"], replayed["unchecked"]) == (0, True, 0)
    assert {rule for rule, _ in found(rig.cli("verify", stream, "--self-signed", s3=False)[1])} == {"missing_blob"}


def found(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["rule"], one["event_id"]) for one in report["violations"]]
