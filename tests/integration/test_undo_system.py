"""What an agent did is undone afterwards: each effect at most once, through kills, asked for again and at once."""

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from aetheris.cli import token_files
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until
from tests.testkit.policies import ASK_IRREVERSIBLE, ruled_by
from tests.testkit.rig import Rig, poke, running_rig, wait

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


@dataclass(frozen=True)
class UndoRig(Rig):
    """An agent submits, and somebody else undoes what it did."""

    def undo(self, job: str, **body: Any) -> httpx.Response:
        return self.system.api.post(f"/jobs/{job}/undo", json=body, headers=self.system.approver)

    def undone_by(self, job: str, **body: Any) -> str:
        answer = self.undo(job, **body)
        assert answer.status_code == 202, answer.text
        assert answer.json()["undoes"] == job
        return answer.json()["job_id"]

    def told(self, job: str, **query: str) -> dict[str, Any]:
        """What the preview says of a job; {} where nothing."""
        cursor: str | None = None
        while True:
            asked = query | ({"cursor": cursor} if cursor else {})
            page = self.system.api.get("/undo", params=asked, headers=self.system.approver).json()
            for one in page["jobs"]:
                if one["job_id"] == job:
                    return one
            cursor = page["cursor"]
            if cursor is None:
                return {}

    def standings(self, job: str, **query: str) -> dict[str, str]:
        return {one["node_id"]: one["standing"] for one in self.told(job, **query).get("effects", ())}

    def cli(self, *argv: str, ends: int = 0) -> str:
        called = [sys.executable, "-m", "aetheris.cli", "undo", *argv, "--data", str(self.system.data)]
        done = subprocess.run(
            [*called, "--as", token_files.APPROVER], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == ends, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[UndoRig]:
    folder = tmp_path_factory.mktemp("undo")
    with running_rig(folder, ruled_by(folder, ASK_IRREVERSIBLE)) as rig:
        yield UndoRig(rig.system, rig.external)


def undoable(name: str, tag: str, *after: str, by: str = "poke_probeable") -> dict[str, Any]:
    """A step whose compensation makes the same effect once more, of what it returned."""
    undo = {"tool": by, "args": {"tag": {"$ref": f"{name}#/poked"}}}
    return poke(name, tag, *after) | {"compensate_with": undo}


def test_what_an_agent_did_is_listed_and_undone_once_through_kills_and_however_often_it_is_asked_for(
    rig: UndoRig,
) -> None:
    system, tag = rig.system, fresh("undo")
    steps = [undoable(f"s{at}", f"{tag}-{at}", *([f"s{at - 1}"] if at else [])) for at in range(3)]
    done = system.completed(*steps, poke("final", f"{tag}-final", "s2"), poke("read", "r", tool="poke_pure"))
    failed = system.submit(undoable("a", f"{tag}-a"), poke("end", "x", "a", tool="poke_refused") | {"args": {}})
    runs = system.submit(undoable("a", f"{tag}-runs"), wait("w", f"{tag}-go", "a"))
    system.wait_ended([failed])
    for job in (done, failed):
        system.wait_sealed(job)
    until(lambda: system.job(runs).get("status") == "waiting", PATIENCE_S)
    agent = system.job(done)["submitted_by"]

    listed = rig.told(done, agent=agent)
    assert [(one["node_id"], one["standing"]) for one in listed["effects"]] == [
        ("final", "not_undoable"),
        ("s2", "undoable"),
        ("s1", "undoable"),
        ("s0", "undoable"),
    ]
    assert "compensate_with" in listed["effects"][0]["why"]
    assert rig.standings(failed, agent=agent) == {"a": "undone"}
    assert "cancel" in rig.told(runs, agent=agent)["why"]
    assert rig.told(done, agent="nobody") == {}
    assert rig.told(done, since="2999-01-01T00:00:00Z") == {}
    assert rig.standings(done, tool="poke_irreversible") == {}
    assert "--yes" in rig.cli("--agent", agent, "--since", "1h")
    assert [rig.external.count(f"{tag}-{at}") for at in (0, 1, 2, "final")] == [1, 1, 1, 1]

    with ThreadPoolExecutor(4) as people:
        answers = list(people.map(lambda _: rig.undo(done), range(4)))
    undos = {answer.json()["job_id"] for answer in answers if answer.status_code == 202}
    assert len(undos) == 1, [answer.text for answer in answers]
    for name in ("executor-0", "planner-0", "ledger-0", "gateway-0"):
        system.kill(name)
    system.wait_ready()
    (undo,) = undos
    system.wait_ended([undo], PATIENCE_S)
    system.wait_sealed(undo)
    assert system.job(undo)["status"] == "completed"
    assert [rig.external.count(f"{tag}-{at}") for at in (0, 1, 2, "final")] == [2, 2, 2, 1]
    keys = [one["key"] for one in rig.external.effects() if one["key"].startswith(f"aetheris:{undo}:")]
    assert keys == [f"aetheris:{undo}:s{at}.undo:0" for at in (2, 1, 0)]
    assert {one["job_id"] for one in rig.told(done)["effects"] if one["standing"] == "undone"} == {undo}

    again = rig.undo(done)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "nothing_to_undo")
    assert rig.undo(failed).json()["error"]["code"] == "nothing_to_undo"
    assert rig.undo(runs).json()["error"]["code"] == "not_undoable"
    rig.cli("--agent", agent, "--yes")
    assert "0 effects" in rig.cli("--agent", agent)
    assert [rig.external.count(f"{tag}-{name}") for name in (0, 1, 2, "final", "a", "runs")] == [2, 2, 2, 1, 2, 1]
    system.verified(undo)


def test_what_was_surely_not_undone_is_undone_by_the_next_one_and_nothing_twice(rig: UndoRig) -> None:
    system, tag = rig.system, fresh("refused")
    job = system.completed(undoable("a", f"{tag}-a"), undoable("b", f"{tag}-b", "a", by="poke_irreversible"))
    system.wait_sealed(job)
    first = rig.undone_by(job)
    asked = system.wait_asked(first)
    assert rig.standings(job) == {"a": "undoing", "b": "undoing"}
    assert rig.undone_by(job) == first
    assert rig.undone_by(job, tool="poke_probeable") == first, "the same effects"
    other = rig.undo(job, since="2999-01-01T00:00:00Z")
    assert (other.status_code, other.json()["error"]["details"]["job_id"]) == (409, first)
    said = {"request_id": asked["request_id"], "action": "reject"}
    assert system.api.post("/ecs/respond", json=said, headers=system.approver).status_code == 200
    system.wait_ended([first])
    system.wait_sealed(first)
    assert rig.standings(job) == {"a": "undoable", "b": "undoable"}
    second = rig.undone_by(job)
    assert second != first
    said = {"request_id": system.wait_asked(second)["request_id"], "action": "approve"}
    assert system.api.post("/ecs/respond", json=said, headers=system.approver).status_code == 200
    system.wait_ended([second])
    system.wait_sealed(second)
    assert rig.standings(job) == {"a": "undone", "b": "undone"}
    assert [rig.external.count(f"{tag}-{name}") for name in "ab"] == [2, 2]
    assert rig.undo(job).json()["error"]["code"] == "nothing_to_undo"


def test_an_undo_in_doubt_is_never_made_again_and_a_part_is_undone_alone(rig: UndoRig) -> None:
    system, tag = rig.system, fresh("doubt")
    job = system.completed(
        undoable("a", f"{tag}-a"), poke("b", f"{tag}-b", "a", tool="poke_idempotent") | lost_undo(f"{tag}-undo")
    )
    system.wait_sealed(job)
    first = rig.undone_by(job, tool="poke_idempotent")
    until(lambda: system.job(first).get("status") == "waiting", PATIENCE_S)
    answer = system.api.post(f"/jobs/{first}/cancel", json={}, headers=system.approver)
    assert answer.status_code == 200, answer.text
    system.wait_ended([first])
    system.wait_sealed(first)
    assert rig.standings(job) == {"a": "undoable", "b": "in_doubt"}
    second = rig.undone_by(job)
    system.wait_ended([second])
    system.wait_sealed(second)
    assert rig.standings(job) == {"a": "undone", "b": "in_doubt"}
    assert [rig.external.count(f"{tag}-{name}") for name in ("a", "b", "undo")] == [2, 1, 1]
    assert rig.undo(job).json()["error"]["code"] == "nothing_to_undo"


def lost_undo(tag: str) -> dict[str, Any]:
    return {"compensate_with": {"tool": "poke_lost", "args": {"tag": tag}}}


def test_what_was_undone_is_not_adopted_as_done(rig: UndoRig) -> None:
    system, tag = rig.system, fresh("continued")
    job = system.submit(undoable("a", f"{tag}-a"), wait("w", f"{tag}-go", "a"), poke("b", f"{tag}-b", "w"))
    until(lambda: system.job(job).get("status") == "waiting", PATIENCE_S)
    assert system.api.post(f"/jobs/{job}/cancel", json={}).status_code == 200
    system.wait_ended([job])
    system.wait_sealed(job)
    assert rig.standings(job) == {"a": "undoable"}
    undo = rig.undone_by(job)
    refused = system.api.post(f"/jobs/{job}/continue", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "undone")
    system.wait_ended([undo])
    assert [rig.external.count(f"{tag}-{name}") for name in "ab"] == [2, 0]

    other = system.submit(undoable("a", f"{tag}-c"), wait("w", f"{tag}-other", "a"))
    until(lambda: system.job(other).get("status") == "waiting", PATIENCE_S)
    assert system.api.post(f"/jobs/{other}/cancel", json={}).status_code == 200
    system.wait_ended([other])
    system.wait_sealed(other)
    continuing = system.api.post(f"/jobs/{other}/continue", json={})
    assert continuing.status_code == 202, continuing.text
    until(lambda: system.job(continuing.json()["job_id"]).get("status") == "waiting", PATIENCE_S)
    refused = rig.undo(other)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_undoable")
    assert rig.external.count(f"{tag}-c") == 1


def test_who_may_not_operate_or_asks_for_another_tenant_undoes_nothing(rig: UndoRig) -> None:
    job = rig.system.completed(undoable("a", fresh("mine")))
    for answer in (rig.system.api.post(f"/jobs/{job}/undo", json={}), rig.system.api.get("/undo")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_role")
    other = rig.system.api.get("/undo", params={"tenant": "other"}, headers=rig.system.approver)
    assert (other.status_code, other.json()["error"]["code"]) == (403, "other_tenant")
    for query in ({"since": "yesterday"}, {"cursor": "x"}):
        answer = rig.system.api.get("/undo", params=query, headers=rig.system.approver)
        assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, *query)
