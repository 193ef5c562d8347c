"""Long jobs and many jobs on the whole system: cost, fairness, and what a restart or a flood of submissions does."""

import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.cli.embedded import lifecycle
from aetheris.rigs.bench.workloads import chain
from tests.testkit.external_server import until
from tests.testkit.system import System, running_system

pytestmark = pytest.mark.nightly

LONG = 5000
IN_FLIGHT = 50
PARTITIONS = 4
BUSY = 4
"""A busy machine may be so much slower than what docs/performance.md says of a quiet one."""
HOT_PATH = ("planner-0", "ledger-0", "executor-0")


@dataclass(frozen=True)
class Load:
    """A system whose only tool appends a line to a file."""

    system: System
    notes: Path

    def lines(self) -> int:
        """How many calls took effect so far."""
        return self.notes.read_bytes().count(b"\n") if self.notes.exists() else 0

    def wait_lines(self, count: int) -> None:
        """Return once so many calls took effect."""
        until(lambda: self.lines() >= count, 240)

    def submit(self, steps: int) -> str:
        """A job of steps that follow each other."""
        return self.system.submit(*chain(steps)["nodes"])

    def effects(self) -> Counter[str]:
        """How often each external key took effect."""
        return Counter(line.split()[1] for line in self.notes.read_text().splitlines())

    def cpu_s(self) -> float:
        """Of the executor, since it started: the others read in pauses, and cost by the second."""
        return _cpu_s(self.system.pid("executor-0"))

    def rss_mib(self) -> dict[str, int]:
        """What each of them has in memory."""
        return {name: _rss_mib(self.system.pid(name)) for name in HOT_PATH}


@pytest.fixture
def load(tmp_path: Path) -> Generator[Load]:
    notes = tmp_path / "notes"
    env = {
        "AETHERIS_TOOLS": "aetheris.rigs.bench.tools",
        "AETHERIS_BENCH_FILE": str(notes),
        "AETHERIS_TRACE_SAMPLE": "0",
        "AETHERIS_JOBS_IN_FLIGHT": str(IN_FLIGHT),
    }
    with running_system(tmp_path / "data", env) as system:
        system.wait_ready()
        yield Load(system, notes)


@pytest.mark.timeout(600)
def test_a_long_job_costs_the_same_at_its_end_goes_on_after_kills_and_slows_nobody(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    alone_s = _job_times_s(load, 15)
    before = load.lines()
    job = load.submit(LONG)
    load.wait_lines(before + 100)
    beside_s = _job_times_s(load, 15)
    early = _cpu_us_per_line(load, 500)
    small = load.rss_mib()
    load.wait_lines(before + LONG // 2)
    back_s: dict[str, float] = {}
    for name in HOT_PATH:
        begun = time.monotonic()
        load.system.kill(name)
        load.system.wait_ready()
        back_s[name] = time.monotonic() - begun
        load.wait_lines(load.lines() + 100)
    load.wait_lines(before + LONG - 700)
    late = _cpu_us_per_line(load, 500)
    large = load.rss_mib()
    load.system.wait_ended([job], 240)
    assert load.system.job(job)["status"] == "completed"
    assert set(load.effects().values()) == {1}
    answer = load.system.api.get(f"/jobs/{job}/verify", timeout=120)
    assert answer.json().get("ok"), answer.text
    alone_ms, beside_ms = statistics.median(alone_s) * 1000, statistics.median(beside_s) * 1000
    back = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in back_s.items())
    with capsys.disabled():
        sys.stdout.write(f"CPU of the executor a step: {early:.0f} µs early, {late:.0f} µs late; ready after {back}\n")
        sys.stdout.write(f"a small job: {alone_ms:.0f} ms alone, {beside_ms:.0f} ms beside it; MiB {small}, {large}\n")
    assert late < early * 2, "a step costs the same however long the job's history is"
    assert beside_ms < alone_ms * BUSY + 500
    assert max(back_s.values()) < 2 * BUSY
    assert all(large[name] < small[name] + 60 for name in HOT_PATH)


@pytest.mark.timeout(400)
def test_a_flood_of_submissions_waits_in_kafka(load: Load) -> None:
    """Nothing ends while the executor stands still: no more than the limit are begun, all are accepted, and kept."""
    flood = 2000
    os.kill(load.system.pid("executor-0"), signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(8) as clients:
            jobs = set(clients.map(lambda _: load.submit(1), range(flood)))
        until(lambda: _begun(load.system) >= IN_FLIGHT * PARTITIONS, 60)
        load.system.kill("planner-0")
        until(lambda: lifecycle.status(load.system.data).parts["planner-0"].ready, 60)
        assert _begun(load.system) == IN_FLIGHT * PARTITIONS
    finally:
        os.kill(load.system.pid("executor-0"), signal.SIGCONT)
    until(lambda: _statuses(load.system) == {"completed": flood}, 240)
    assert (len(jobs), load.lines(), set(load.effects().values())) == (flood, flood, {1})


def _begun(system: System) -> int:
    """How many jobs have a birth in the log."""
    return sum(count for status, count in _statuses(system).items() if status != "submitted")


def _statuses(system: System) -> Counter[str]:
    """How many jobs the list shows with each status."""
    found: Counter[str] = Counter()
    cursor = None
    while True:
        params: dict[str, str | int] = {"limit": 200}
        page = system.api.get("/jobs", params=params | ({"cursor": cursor} if cursor else {})).json()
        found.update(job["status"] for job in page["jobs"])
        cursor = page["cursor"]
        if cursor is None:
            return found


def _job_times_s(load: Load, jobs: int) -> list[float]:
    """How long jobs of ten steps take, one after the other, for a client that asks as often as it can."""
    took: list[float] = []
    for _ in range(jobs):
        begun = time.monotonic()
        load.system.wait_ended([load.submit(10)])
        took.append(time.monotonic() - begun)
    return took


def _cpu_us_per_line(load: Load, lines: int) -> float:
    begun, at = load.cpu_s(), load.lines()
    load.wait_lines(at + lines)
    return (load.cpu_s() - begun) / (load.lines() - at) * 1e6


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
