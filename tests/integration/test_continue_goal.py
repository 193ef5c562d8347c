"""A job that a model planned is gone on from, and nothing that it did is done again (docs/continue.md)."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.agents import AgentsRig, running_agents
from tests.testkit.attempts import fresh
from tests.testkit.bundles import opinions
from tests.testkit.policies import ALLOW_ALL, ruled_by
from tests.testkit.rig import poke

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SCRIPT: dict[str, list[dict[str, Any]]] = {}
"""Goal → the model's answers."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[AgentsRig]:
    folder = tmp_path_factory.mktemp("goals")
    with running_agents(folder, SCRIPT, ruled_by(folder, ALLOW_ALL)) as rig:
        yield rig


def call(tool: str, tag: str) -> dict[str, Any]:
    return {"tool": tool, "args": {"tag": tag}}


def failed(rig: AgentsRig, goal: str, *calls: dict[str, Any]) -> str:
    """A goal's job that made these calls, one a turn, and then one too many that fails; it is sealed."""
    SCRIPT[goal] = [{"calls": [one]} for one in (*calls, {"tool": "poke_refused", "args": {}})]
    job = rig.system.submit_goal(goal, limits={"failed_turns": 0})
    rig.system.wait_status(job, "failed", 60)
    rig.system.wait_sealed(job)
    return job


def continued(rig: AgentsRig, job: str, **body: Any) -> str:
    answer = rig.system.api.post(f"/jobs/{job}/continue", json=body)
    assert answer.status_code == 202, answer.text
    second = answer.json()["job_id"]
    rig.system.wait_ended([second])
    rig.system.wait_sealed(second)
    return second


def holds(rig: AgentsRig, job: str, folder: Path) -> None:
    """The job and those that it continues hold: in the log, and in the bundle for both of its readers."""
    rig.system.verified(job)
    answer = rig.system.api.get(f"/jobs/{job}/evidence")
    assert answer.status_code == 200, answer.text
    for report in opinions(rig.system, answer.content, folder):
        assert report["ok"], report["violations"]


def test_with_a_plan_its_calls_are_adopted_by_their_ids(rig: AgentsRig, tmp_path: Path) -> None:
    tag, later = fresh("done"), fresh("later")
    job = failed(rig, fresh("goal"), call("poke_idempotent", tag))
    again = poke("goal.turn-1.1", tag, tool="poke_idempotent")
    changed = rig.system.api.post(f"/jobs/{job}/continue", json={"plan": {"nodes": [again | {"args": {"tag": later}}]}})
    assert (changed.status_code, changed.json()["error"]["code"]) == (409, "step_changed")
    plan = [
        again,
        poke("z", later, "goal.turn-1.1"),
        poke("y", {"$ref": "goal.turn-1.1#/poked"}, "z", tool="poke_idempotent"),
    ]
    second = continued(rig, job, plan={"nodes": plan})
    shown = rig.system.job(second)
    assert (shown["status"], shown["continues"]["job_id"]) == ("completed", job)
    assert {"goal.turn-1", "goal.turn-1.1"} <= set(shown["continues"]["adopted"])
    assert (rig.external.count(later), rig.external.count(tag)) == (1, 2), (
        "of goal.turn-1.1 once, and what y did with it"
    )
    holds(rig, second, tmp_path)


def test_without_one_its_model_is_asked_to_go_on_and_nothing_is_done_again(rig: AgentsRig, tmp_path: Path) -> None:
    """Not by the same goal's script either, which says again what it said first; nor by a third job."""
    goal, tag, paid, later = fresh("goal"), fresh("done"), fresh("paid"), fresh("later")
    done = (call("poke_idempotent", tag), call("poke_irreversible", paid))
    job = failed(rig, goal, *done)
    again = {"calls": [*done, call("poke_probeable", later)]}
    SCRIPT[goal] = [again, {"calls": [{"tool": "poke_refused", "args": {}}]}]
    second = continued(rig, job)
    shown = rig.system.job(second)
    assert (shown["status"], shown["goal"], shown["continues"]["job_id"]) == ("failed", goal, job)
    assert [one["node_id"] for one in shown["steps"]] == [
        "goal",
        "goal.turn-4",
        "goal.turn-4.3",
        "goal.turn-5",
        "goal.turn-5.1",
    ]
    asked = [one.body["messages"] for one in rig.model.requests if one.goal == goal]
    reported = [json.loads(line) for line in str(asked[3][2]["content"]).splitlines() if line.startswith("{")]
    assert [(one["tool"], one["outcome"], one.get("result")) for one in reported] == [
        ("poke_idempotent", "completed", json.dumps({"poked": tag})),
        ("poke_irreversible", "completed", json.dumps({"poked": paid})),
        ("poke_refused", "failed", None),
    ]
    returned = [one["content"] for one in asked[4] if one["role"] == "tool"]
    assert returned == [json.dumps({"poked": one}) for one in (tag, paid, later)]
    SCRIPT[goal] = [again, {"text": "All is done."}]
    third = continued(rig, second)
    assert rig.system.job(third)["status"] == "completed"
    assert [rig.external.count(one) for one in (tag, paid, later)] == [1, 1, 1]
    holds(rig, third, tmp_path)
    replayed = rig.system.api.get(f"/jobs/{third}/replay").json()
    assert (replayed["ok"], replayed["unchecked"]) == (True, 0)
