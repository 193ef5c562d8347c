"""What two tenants have to do, and how long a third one's job takes beside them, on the whole system."""

import statistics
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.testkit.external_server import until
from tests.testkit.system import System, running_system
from tests.testkit.tokens import headers_of, write_tokens

pytestmark = [pytest.mark.nightly, pytest.mark.real]

STUCK = 4600
SLOW = 300
SAMPLES = 60
AT_MOST = 1.5
"""Times as long as alone."""
ELSEWHERE_S = 0.1
"""What other tests on the machine may add."""
TAKES_LONG = {"id": "a", "tool": "takes_long"}
NEVER_NOW = {
    "id": "a",
    "tool": "never_now",
    "retry": {"max_attempts": 100, "backoff_s": 86_400, "max_backoff_s": 86_400},
}
"""A try, and another a day later, for a hundred days."""


@pytest.fixture
def systems(tmp_path: Path) -> Generator[dict[str, System]]:
    """One system, as each of three tenants sees it."""
    tenants = ("stuck", "slow", "other")
    write_tokens(tmp_path / "data", {name: name for name in tenants})
    env = {"AETHERIS_TOOLS": "tests.testkit.neighbour_tools", "AETHERIS_TRACE_SAMPLE": "0"}
    with running_system(tmp_path / "data", env) as system, ExitStack() as clients:
        system.wait_ready()
        address = str(system.api.base_url)
        apis = {
            name: httpx.Client(base_url=address, headers=headers_of(name), timeout=60, trust_env=False)
            for name in tenants
        }
        yield {name: System(system.data, clients.enter_context(api)) for name, api in apis.items()}


@pytest.mark.timeout(600)
def test_another_tenants_echo_is_as_quick_beside_thousands_of_stuck_jobs_and_hundreds_of_slow_ones(
    systems: dict[str, System], capsys: pytest.CaptureFixture[str]
) -> None:
    stuck, slow, other = systems["stuck"], systems["slow"], systems["other"]
    _times_s(other, 10)
    alone_s = statistics.median(_times_s(other, SAMPLES))
    with ThreadPoolExecutor(8) as clients:
        long = list(clients.map(lambda _: slow.submit(TAKES_LONG), range(SLOW)))
        later = list(clients.map(lambda _: stuck.submit(NEVER_NOW), range(STUCK)))
    until(lambda: _is_begun(slow, long[0]) and _is_begun(stuck, later[0]), 120)
    _quiet(stuck, other)
    beside_s = statistics.median(_times_s(other, SAMPLES))
    with capsys.disabled():
        sys.stdout.write(f"another tenant's echo: {alone_s * 1000:.1f} ms alone, {beside_s * 1000:.1f} ms beside\n")
    assert slow.job(long[0])["status"] == stuck.job(later[0])["status"] == "running"
    assert beside_s <= AT_MOST * alone_s + ELSEWHERE_S


def _is_begun(system: System, job: str) -> bool:
    return "tool_invocation_started" in system.types(job)


def _quiet(system: System, other: System) -> None:
    """Return once nothing more of the submissions is taken up while jobs of another tenant begin and end."""

    def waiting() -> object:
        return system.api.get("/limits").json()["open_jobs"]

    def same() -> bool:
        before = waiting()
        _times_s(other, 10)
        return waiting() == before

    until(same, 240)


def _times_s(system: System, jobs: int) -> list[float]:
    """From submission to the end, as a client sees it that asks every other millisecond."""
    took: list[float] = []
    for number in range(jobs):
        begun = time.monotonic()
        job = system.submit({"id": "a", "tool": "echo", "args": {"text": str(number)}})
        while system.job(job).get("status") != "completed":
            time.sleep(0.002)
        took.append(time.monotonic() - begun)
    return took
