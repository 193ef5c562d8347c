"""What the system says of itself: not ready while its broker hangs, and no job unknown whose 202 was given."""

import time
from collections.abc import Generator

import pytest

from aetheris.cli.embedded.plan import Plan
from aetheris.runtime.kafka.pulse import EVERY_S, WITHIN_S
from tests.testkit.external_server import until
from tests.testkit.services import asked
from tests.testkit.system import System, running_system

pytestmark = pytest.mark.real

SLACK_S = 4.0
"""Of a busy machine."""

OF_A_JOB = ("", "/events", "/trace", "/effects", "/ledger", "/contracts", "/replay", "/verify", "/evidence")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    with running_system(tmp_path_factory.mktemp("system"), {"AETHERIS_TOOLS": "tests.testkit.wide_tools"}) as system:
        yield system


def test_readiness_turns_within_seconds_of_a_broker_that_hangs_and_back(system: System) -> None:
    system.wait_ready()
    ports = {part.name: int(part.target) for part in Plan.load(system.data).parts if part.ask == "http"}
    with system.asleep("kafka"):
        begun_s = time.monotonic()
        until(lambda: all(asked(port, "/readyz")[0] == 503 for port in ports.values()), 60)
        assert time.monotonic() - begun_s < EVERY_S + WITHIN_S + SLACK_S
        assert all("don't answer" in asked(port, "/readyz")[1]["unready"]["brokers"] for port in ports.values())
        assert all(asked(port, "/livez")[0] == 200 for port in ports.values())
    until(lambda: all(asked(port, "/readyz")[0] == 200 for port in ports.values()), 30)


def test_a_job_whose_202_was_given_is_known_before_anybody_took_it_up(system: System) -> None:
    with system.asleep("planner-0"):
        job = system.submit({"id": "a", "tool": "wide", "args": {"size": 3}})
        answers = {path: system.api.get(f"/jobs/{job}{path}") for path in OF_A_JOB}
        answers["reconcile"] = system.api.post(f"/jobs/{job}/reconcile", json={})
        answers["resolve"] = system.api.post(
            f"/jobs/{job}/contracts/x/resolve", json={"verdict": "happened", "evidence": "seen"}
        )
        codes = {path: answer.status_code for path, answer in answers.items()}
        assert 404 not in codes.values(), codes
        assert answers[""].json()["status"] == "submitted"
        assert answers["/verify"].status_code == 503
        assert "retry-after" in answers["/verify"].headers
    system.wait_ended([job])
    assert system.api.get(f"/jobs/{job}/trace").status_code == 200
