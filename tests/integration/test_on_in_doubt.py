"""A job, or a tool, that is to fail where nobody can tell whether a call took effect."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.outside import Outside, running_outside
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Outside]:
    with running_outside(tmp_path_factory.mktemp("outside")) as running:
        yield running


@pytest.fixture(scope="module")
def system(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    data: Path = tmp_path_factory.mktemp("system") / "data"
    with running_system(data, {"AETHERIS_TOOLS": "tests.testkit.lossy_tools", **outside.env}) as running:
        yield running


def submit(system: System, tool: str, tag: str, **options: str) -> str:
    plan = {"nodes": [{"id": "a", "tool": tool, "args": {"tag": tag}}]}
    answer = system.api.post("/jobs", json={"plan": plan, "options": options})
    assert answer.status_code == 202, answer.text
    return answer.json()["job_id"]


def check_not_known(system: System, job: str) -> None:
    view: dict[str, Any] = system.wait_status(job, "failed", PATIENCE_S)
    assert "whether a took effect is not known. Look outside for aetheris:" in view["why"]
    assert view["error"] == "failed, not sure: nobody can tell whether an opaque call took effect"
    (step,) = view["steps"]
    assert (step["state"], step["result_type"], step["attempts"]) == ("failed", "permanent_failure", 1)
    system.verified(job)


@pytest.mark.parametrize(
    ("tool", "options"), [("lose", {"on_in_doubt": "fail"}), ("lose_and_fail", {})], ids=["job", "tool"]
)
def test_it_fails_and_says_that_it_is_not_known(
    system: System, outside: Outside, tool: str, options: dict[str, str]
) -> None:
    tag = fresh(f"fail-{tool}")
    job = submit(system, tool, tag, **options)
    check_not_known(system, job)
    assert outside.count(tag) == 1


def test_a_job_that_asks_for_a_human_gets_one(system: System, outside: Outside) -> None:
    tag = fresh("park")
    job = submit(system, "lose_and_fail", tag, on_in_doubt="park")
    assert system.wait_status(job, "waiting", PATIENCE_S)["steps"][0]["state"] == "waiting"
    assert outside.count(tag) == 1


def test_an_unknown_option_is_refused_by_its_name(system: System) -> None:
    answer = system.api.post("/jobs", json={"plan": {"nodes": []}, "options": {"on_in_doubt": "pray"}})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["field"] == "options.on_in_doubt"
