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
from tests.testkit.attempts import fresh
from tests.testkit.outside import until
from tests.testkit.s3 import BUCKET, S3, running_s3
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PREFIX = "aetheris/blobs"
TIMES = 30_000


@dataclass(frozen=True)
class World:
    system: System
    s3: S3
    folder: Path

    def done(self, *nodes: dict[str, Any]) -> str:
        job = self.system.submit(*nodes)
        self.system.wait_ended([job])
        assert self.system.job(job)["status"] == "completed", self.system.job(job)
        return job

    def die_at(self, place: str) -> None:
        """The executor dies when it next gets to this place."""
        staged = self.system.data / "crash-at.new"
        staged.write_text(place)
        staged.replace(self.system.data / "crash-at")

    def has_died(self) -> bool:
        return not (self.system.data / "crash-at").exists()

    def sealed(self, job: str) -> None:
        until(lambda: bool(self.events(job, "job_sealed")), 30)

    def events(self, job: str, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.api_of(job, "events").json() if one["type"] == kind]

    def api_of(self, job: str, what: str) -> httpx.Response:
        return self.system.api.get(f"/jobs/{job}/{what}")

    def verified(self, job: str) -> dict[str, Any]:
        return self.api_of(job, "verify").json()

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
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("s3")
    with running_s3(folder / "s3") as s3:
        env = {
            **s3.env,
            "AETHERIS_TOOLS": "tests.testkit.s3_tools",
            "AETHERIS_BLOBS": f"s3://{BUCKET}/{PREFIX}",
            "AETHERIS_CRASH_AT": "ordered",
            "S3_BUCKET": BUCKET,
        }
        with running_system(folder / "data", env) as system:
            yield World(system, s3, folder)


@pytest.mark.parametrize("place", ["in_call", "after_call"])
def test_a_put_whose_executor_dies_leaves_one_version(world: World, place: str) -> None:
    key = f"kept/{fresh(place)}"
    world.die_at(f"{place}:put_object")
    job = world.done(put("a", key, "one"))
    assert world.has_died()
    assert world.s3.versions(key) == 1
    held = world.s3.client.get_object(Bucket=BUCKET, Key=key)
    assert (held["Body"].read(), held["Metadata"]["aetheris"]) == (b"one", f"aetheris:{job}:a:0")
    assert world.verified(job)["ok"]
    assert world.system.api.post(f"/jobs/{job}/reconcile").json()["ok"]
    world.s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"somebody else's")
    compared = world.system.api.post(f"/jobs/{job}/reconcile").json()
    assert [set(one["detail"]) for one in compared["effects"]] == [{"sha256"}]


def test_a_request_that_is_still_on_its_way_when_its_executor_dies(world: World) -> None:
    key = fresh("late")
    world.s3.freeze()
    try:
        job = world.system.submit(put("a", key, "one"), put("b", key, "two", "a", was={"$ref": "a#/etag"}))
        until(lambda: bool(world.events(job, "tool_invocation_started")), 30)
        world.system.kill("executor-0")
    finally:
        world.s3.thaw()
    world.system.wait_ended([job])
    assert world.system.job(job)["status"] == "completed"
    assert world.s3.versions(key) == 2


def test_a_job_is_sealed_when_its_large_result_can_be_asked_for_again(world: World) -> None:
    wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}, "depends_on": ["a"]}
    job = world.system.submit(make("a", "klmno"), wait)
    world.system.wait_status(job, "waiting")
    world.s3.deny("s3:GetObject")
    try:
        world.system.api.post(f"/jobs/{job}/signal", json={"correlation_key": "go"}).raise_for_status()
        world.system.wait_ended([job])
        small = world.done({"id": "a", "tool": "large", "args": {"word": "a", "times": 1}})
        world.sealed(small)
        assert world.events(job, "job_sealed") == []
        answer = world.api_of(job, "verify")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "blobs_unreachable")
        assert "AccessDenied" in answer.json()["error"]["message"]
    finally:
        world.s3.deny()
    world.sealed(job)
    assert (world.verified(job)["ok"], world.events(job, "violation_found")) == (True, [])


def test_large_results_lie_on_s3_and_are_proven(world: World) -> None:
    key, word, other = fresh("large"), fresh("")[-5:], fresh("")[-5:]
    world.die_at("after_call:large")
    job = world.done(make("a", word), put("b", key, {"$ref": "a#/text"}, "a"), make("c", other, "b"))
    assert world.has_died()
    finished = world.events(job, "tool_invocation_finished")
    refs = {one["data"]["node_id"]: one["data"]["result_ref"] for one in finished if one["data"].get("result_ref")}
    assert set(refs) == {"a", "c"}, finished
    first, last = (refs[node]["sha256"] for node in "ac")
    assert (world.s3.versions(blob(first)), world.s3.versions(blob(last))) == (1, 1)
    assert not (world.system.data / "blobs").exists()
    assert world.s3.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == word.encode() * TIMES
    world.sealed(job)
    again = world.done(make("a", word))
    assert (world.s3.versions(blob(first)), world.verified(again)["violations"]) == (1, [])
    assert world.verified(job)["ok"]
    bundle, stream = str(world.folder / "job.zip"), str(world.folder / "job.jsonl")
    assert world.cli("export", job, "--out", bundle)[0] == 0
    assert world.cli("export", job, "--stream", "--out", stream)[0] == 0
    assert world.cli("verify", stream)[0] == 0
    replayed = world.api_of(job, "replay").json()
    assert (replayed["ok"], replayed["unchecked"]) == (True, 0)

    held = world.s3.client.get_object(Bucket=BUCKET, Key=blob(last))["Body"].read()
    said = next(one["id"] for one in finished if one["data"]["node_id"] == "c")
    world.s3.client.delete_object(Bucket=BUCKET, Key=blob(last))
    assert found(world.verified(job)) == [("missing_blob", said)]
    for argv in (["verify", job], ["verify", job, "--from-log"], ["verify", stream]):
        code, report = world.cli(*argv)
        assert (code, found(report)) == (1, [("missing_blob", said)])
    assert world.api_of(job, "evidence").status_code == 409
    world.s3.client.put_object(Bucket=BUCKET, Key=blob(last), Body=held[:-1])
    assert found(world.verified(job)) == [("blob_mismatch", said)]
    world.s3.client.put_object(Bucket=BUCKET, Key=blob(last), Body=held)
    assert world.verified(job)["ok"]

    world.s3.kill()  # the end of this file's store: what fails from here on has no second chance
    for what in ("verify", "replay", "evidence"):
        answer = world.api_of(job, what)
        assert (answer.status_code, "blobs_unreachable" in answer.text) == (503, True), (what, answer.text[:1000])
    for argv in (["verify", job], ["verify", stream]):
        code, told = world.cli(*argv)
        assert (code, told["error"]["code"]) == (5, "blobs_unreachable"), (argv, told)
    assert world.cli("verify", bundle, s3=False)[0] == 0
    code, replayed = world.cli("replay", bundle, s3=False)
    assert (code, replayed["ok"], replayed["unchecked"]) == (0, True, 0)
    assert {rule for rule, _ in found(world.cli("verify", stream, s3=False)[1])} == {"missing_blob"}


def found(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["rule"], one["event_id"]) for one in report["violations"]]
