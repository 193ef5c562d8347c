"""Records that Kafka refuses, in the running system: their job alone is concerned, says so, and goes on when it may."""

import asyncio
from collections.abc import Generator

import pytest

from aetheris.cli.embedded.doctor import examine
from aetheris.protocol.base.topics import Topic
from tests.testkit.brokers import configure
from tests.testkit.external_server import until
from tests.testkit.policies import ALLOW_REST, ruled_by
from tests.testkit.system import System, running_system

pytestmark = [pytest.mark.nightly, pytest.mark.real]

LIMIT = 20_000
WIDE = 40_000
POLICY = f"""
[[rules]]
name = "ask"
tools = ["take"]
effect = "approval"
{ALLOW_REST}"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Generator[System]:
    data = tmp_path_factory.mktemp("system")
    env = {"AETHERIS_TOOLS": "tests.testkit.wide_tools", **ruled_by(data, POLICY)}
    with running_system(data, env) as system:
        yield system


@pytest.fixture
def narrow(system: System) -> Generator[None]:
    """While it lasts the log of events takes only small records."""
    _limit(system, {"max.message.bytes": str(LIMIT)})
    try:
        yield
    finally:
        _limit(system, {})


@pytest.mark.usefixtures("narrow")
def test_a_report_that_is_refused_is_said_in_fewer_bytes(system: System) -> None:
    """And with it the start of what follows in the run, which then goes its own way."""
    first = {"id": "a", "tool": "wide", "args": {"size": WIDE}}
    job = system.submit(first, {"id": "b", "tool": "wide", "args": {"size": 3}, "depends_on": ["a"]})
    system.wait_ended([job])
    system.verified(job)
    assert system.job(job)["status"] == "completed"
    assert [one["via"] for one in system.data_of(job, "tool_invocation_finished")] == ["executor", "executor"]
    assert len(system.data_of(job, "tool_invocation_started")) == 2


@pytest.mark.usefixtures("narrow")
def test_a_submission_whose_birth_is_refused_stops_no_other(system: System) -> None:
    before = system.pid("planner-0")
    system.submit({"id": "a", "tool": "take", "args": {"text": "x" * WIDE}})
    job = system.submit({"id": "a", "tool": "wide", "args": {"size": 3}})
    system.wait_ended([job])
    assert system.pid("planner-0") == before
    assert sum(system.ends(f"{Topic.JOBS_COMMANDS}.dlq").values()) == 1


def test_a_job_whose_request_is_refused_is_shown_as_stuck_and_goes_on_when_it_may(system: System) -> None:
    pids = {name: system.pid(name) for name in ("ledger-0", "planner-0", "executor-0")}
    first = {"id": "a", "tool": "wide", "args": {"size": WIDE}}
    _limit(system, {"max.message.bytes": str(LIMIT)})
    try:
        job = system.submit(
            first, {"id": "b", "tool": "take", "args": {"text": {"$ref": "a#/text"}}, "depends_on": ["a"]}
        )
        until(lambda: bool(_told(system, job)), 30)
        others = [system.submit({"id": "a", "tool": "wide", "args": {"size": 3}}) for _ in range(10)]
        system.wait_ended(others)
        assert system.job(job)["status"] not in ("completed", "failed")
    finally:
        _limit(system, {})
    request = system.wait_asked(job)
    body = {"request_id": request["request_id"], "action": "approve", "data": {}}
    answer = system.api.post("/ecs/respond", json=body, headers=system.approver)
    assert answer.status_code == 200, answer.text
    assert {name: system.pid(name) for name in pids} == pids
    until(lambda: not _told(system, job), 30)


def _told(system: System, job: str) -> list[str]:
    """What doctor says of it."""
    return [one.detail for one in examine(system.data) if not one.ok and job in one.detail]


def _limit(system: System, values: dict[str, str]) -> None:
    asyncio.run(configure(system.state().kafka, Topic.JOBS_EVENTS, values))
