"""A paused job on the whole system: whoever dies meanwhile, nothing of it starts; resumed, it comes to its end."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, poke

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


def say(rig: Rig, what: str, job: str, reason: str | None = None) -> httpx.Response:
    return rig.system.api.post(f"/jobs/{job}/{what}", json={"reason": reason} if reason else {})


def listed_as(rig: Rig, status: str) -> list[dict[str, Any]]:
    return rig.system.api.get("/jobs", params={"status": status}).json()["jobs"]


def test_a_job_paused_in_the_middle_starts_nothing_though_all_that_run_it_are_killed(rig: Rig) -> None:
    tag = fresh("paused")
    held = rig.external.hold(tag)
    job = rig.system.submit(poke("a", tag, hold=tag), poke("b", f"{tag}-b", "a"), poke("c", f"{tag}-c", "b"))
    rig.external.wait_for(1, tag)
    with ThreadPoolExecutor() as people:
        answers = list(people.map(lambda why: say(rig, "pause", job, why), ("look", "wait", "stop")))
    assert [(answer.status_code, answer.json()["event"]) for answer in answers] == [(200, "job_paused")] * 3
    assert rig.system.types(job, "job_paused") == ["job_paused"]
    held.unlink()
    until(lambda: rig.system.types(job, "node_finished") == ["node_finished"], 30)
    view = rig.system.job(job)
    who, why = view["paused"]["by"], view["paused"]["reason"]
    assert (view["status"], view["why"]) == ("paused", f"paused by {who}: {why}")
    for service in ("executor-0", "ledger-0", "planner-0"):
        rig.system.kill(service)
    rig.system.wait_ready()
    listed = listed_as(rig, "paused")
    assert [(row["job_id"], row["paused"]["by"], row["paused"]["reason"]) for row in listed] == [(job, who, why)]
    for _ in range(4):  # they run, and other jobs go on
        rig.system.completed(poke("a", fresh("other")))
    assert (rig.external.count(f"{tag}-b"), rig.system.job(job)["status"]) == (0, "paused")
    assert say(rig, "resume", job).json()["event"] == "job_resumed"
    rig.system.wait_status(job, "completed")
    assert [rig.external.count(f"{tag}{node}") for node in ("", "-b", "-c")] == [1, 1, 1]
    rig.system.verified(job)
    until(lambda: job in [row["job_id"] for row in listed_as(rig, "completed")], 30)
    assert [row for row in listed_as(rig, "completed") if "paused" in row] == []
    assert say(rig, "pause", job).status_code == 409


def test_what_cant_be_paused_or_resumed_is_refused_and_leaves_the_log_as_it_is(rig: Rig) -> None:
    wait = {"id": "w", "kind": "wait", "wait": {"key": "go"}}
    job = rig.system.submit(wait, poke("a", fresh("after"), "w"))
    rig.system.wait_status(job, "waiting")
    before = rig.system.types(job)
    refused = say(rig, "resume", job)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "illegal_transition")
    assert say(rig, "pause", "no-such-job").status_code == 404
    assert rig.system.api.post(f"/jobs/{job}/pause", json={"reason": "x" * 3_000}).status_code == 400
    assert rig.system.types(job) == before
    assert say(rig, "pause", job).status_code == 200
    again = say(rig, "pause", job, "once more")
    assert (again.status_code, again.json()["paused"]["reason"]) == (200, None)
    signalled = rig.system.signal(job, "go", 1)
    assert signalled.json()["event"] == "signal_received"
    assert rig.system.api.post(f"/jobs/{job}/cancel", json={}).status_code == 200
    rig.system.wait_status(job, "cancelled")
    assert (say(rig, "pause", job).status_code, say(rig, "resume", job).status_code) == (409, 409)
    assert "tool_invocation_started" not in rig.system.types(job)
    rig.system.verified(job)
