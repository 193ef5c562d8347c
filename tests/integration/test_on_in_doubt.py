"""A job, or a tool, that is to fail where nobody can tell whether a call took effect."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.testkit.attempts import fresh
from tests.testkit.external_server import ExternalServer
from tests.testkit.rig import Rig, running_rig
from tests.testkit.system import System

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rig]:
    env = {"AETHERIS_TOOLS": "tests.testkit.lossy_tools"}
    with running_rig(tmp_path_factory.mktemp("in-doubt"), env) as rig:
        yield rig


def submit(system: System, tool: str, tag: str, **options: str) -> str:
    return system.submit({"id": "a", "tool": tool, "args": {"tag": tag}}, options=options)


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
    system: System, external: ExternalServer, tool: str, options: dict[str, str]
) -> None:
    tag = fresh(f"fail-{tool}")
    job = submit(system, tool, tag, **options)
    check_not_known(system, job)
    assert external.count(tag) == 1


def test_a_job_that_asks_for_a_human_gets_one(system: System, external: ExternalServer) -> None:
    tag = fresh("park")
    job = submit(system, "lose_and_fail", tag, on_in_doubt="park")
    assert system.wait_status(job, "waiting", PATIENCE_S)["steps"][0]["state"] == "waiting"
    assert external.count(tag) == 1


def test_an_unknown_option_is_refused_by_its_name(system: System) -> None:
    answer = system.api.post("/jobs", json={"plan": {"nodes": []}, "options": {"on_in_doubt": "pray"}})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["field"] == "options.on_in_doubt"
