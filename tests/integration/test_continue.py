"""A failed job is gone on from in a new one, and nothing that it did is done again (docs/continue.md)."""

import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside, until
from tests.testkit.system import REPOSITORY, System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Outside]:
    with running_outside(tmp_path_factory.mktemp("outside")) as running:
        yield running


@pytest.fixture(scope="module")
def system(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    data = tmp_path_factory.mktemp("continue") / "data"
    with running_system(data, {"AETHERIS_TOOLS": "tests.testkit.outside_tools", **outside.env}) as running:
        yield running


def poke(node: str, tool: str, tag: Any, *needs: str) -> dict[str, Any]:
    return {"id": node, "tool": tool, "args": {"tag": tag}, "depends_on": list(needs)}


REFUSED = {"id": "b", "tool": "poke_refused", "args": {}, "depends_on": ["a"]}


def go_on(system: System, job: str, *nodes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(the status, the answer) of a continuation; None of nodes: with the job's own plan."""
    body = {"plan": {"nodes": list(nodes)}} if nodes else {}
    answer = system.api.post(f"/jobs/{job}/continue", json=body)
    return answer.status_code, answer.json()


def failed(system: System, *nodes: dict[str, Any], **options: str) -> str:
    """A job that has failed, and is sealed."""
    answer = system.api.post("/jobs", json={"plan": {"nodes": list(nodes)}, "options": options})
    assert answer.status_code == 202, answer.text
    job = answer.json()["job_id"]
    system.wait_status(job, "failed", 60)
    until(lambda: any(one["type"] == "job_sealed" for one in system.api.get(f"/jobs/{job}/events").json()), 60)
    return job


def test_what_is_left_runs_on_what_was_done_and_nothing_is_done_again(system: System, outside: Outside) -> None:
    tag, later = fresh("first"), fresh("later")
    first, last = poke("a", "poke_probeable", tag), poke("c", "poke_idempotent", {"$ref": "a#/poked"}, "b")
    job = failed(system, first, REFUSED, last)
    status, error = go_on(system, job, poke("a", "poke_probeable", "other"), poke("b", "poke_probeable", later))
    assert (status, error["error"]["code"], error["error"]["details"]["nodes"]) == (409, "step_changed", ["a"])
    plan = [first, poke("b", "poke_probeable", later, "a"), last]
    (status, taken), (again, same) = go_on(system, job, *plan), go_on(system, job, *plan)
    assert (status, again, taken["job_id"], taken["continues"]) == (202, 202, same["job_id"], job)
    system.wait_ended([taken["job_id"]])
    shown = system.job(taken["job_id"])
    assert (shown["status"], shown["continues"]) == ("completed", {"job_id": job, "adopted": ["a"]})
    assert [(one["node_id"], one["state"]) for one in shown["steps"]] == [("b", "completed"), ("c", "completed")]
    assert (outside.count(later), outside.count(tag)) == (1, 2), "of a once, and what c did with its result"
    made = [one["key"] for one in outside.effects(tag=tag)]
    assert made == [f"aetheris:{job}:a:0", f"aetheris:{taken['job_id']}:c:0"]
    system.verified(taken["job_id"])
    status, error = go_on(system, job, first, poke("b", "poke_probeable", fresh("third")))
    assert (status, error["error"]["code"]) == (409, "continued")
    assert error["error"]["details"]["job_id"] == taken["job_id"]


def test_a_continuation_that_fails_is_continued_itself(system: System, outside: Outside) -> None:
    tag = fresh("chain")
    job = failed(system, poke("a", "poke_probeable", tag), REFUSED)
    command = [sys.executable, "-m", "aetheris.cli", "continue", job, "--json", "--data", str(system.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)["job_id"]
    system.wait_status(second, "failed", 60)
    until(lambda: go_on(system, second, poke("z", "poke_pure", tag))[0] == 202, 60)
    status, taken = go_on(system, second, poke("z", "poke_pure", tag))
    assert status == 202
    system.wait_ended([taken["job_id"]])
    assert system.job(taken["job_id"])["continues"] == {"job_id": second, "adopted": ["a"]}
    assert outside.count(tag) == 1


def test_what_nobody_is_sure_of_is_not_gone_on_from(system: System, outside: Outside) -> None:
    tag = fresh("lost")
    job = failed(system, poke("a", "poke_lost", tag), on_in_doubt="fail")
    status, error = go_on(system, job)
    assert (status, error["error"]["code"], error["error"]["details"]["nodes"]) == (409, "unsure", ["a"])
    assert outside.count(tag) == 1
    assert go_on(system, "no-such-job")[0] == 404
