"""Workflows that sleep: what many of them cost while nothing happens, and how soon all is there again."""

import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.rigs.bench import usage
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.resting_jobs import PACKING, resting, wait_resting
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(1800)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows"
LOOKED_S = 30.0
BEFORE = 20
"""Who sleeps before anything is looked at, so that all code has run."""
A_SECOND = 3
"""So many go to sleep a second, at least, on a busy machine."""
MOST_CPU = 0.05
"""Of a core, for all who sleep, in all processes: it is next to nothing, and what else the machine does shows in it."""
MOST_MIB = {500: 140}
"""What they may take more, in all processes, as everybody has packed them: a regression shows, noise does not."""


@dataclass(frozen=True)
class Use:
    """Of all services, by name: MiB, and seconds of CPU."""

    rss_mib: Mapping[str, float]
    cpu_s: Mapping[str, float]

    @classmethod
    def of(cls, rig: Rig) -> "Use":
        """As it is now; the processes of bodies beside their executors."""
        pids = {name: part.pid for name, part in rig.system.state().parts.items() if part.pid is not None}
        pids |= {f"a process of {name}": child for name, pid in pids.items() for child in usage.children(pid)}
        return cls({name: one.rss for name, one in usage.memory(pids).items()}, usage.cpu_s(pids))

    def more(self, before: "Use") -> dict[str, float]:
        """MiB more than before."""
        return {name: round(now - before.rss_mib.get(name, 0.0), 1) for name, now in self.rss_mib.items()}


@pytest.fixture
def rig(tmp_path: Path) -> Generator[Rig]:
    env = {"AETHERIS_TOOLS": MODULES, "AETHERIS_WORKFLOW_IDLE_S": "1", "AETHERIS_TRACE_SAMPLE": "0"}
    with running_rig(tmp_path, env) as rig:
        rig.system.wait_ready()
        yield rig


@pytest.mark.parametrize(
    "asleep",
    [
        500,
        pytest.param(1_000, marks=pytest.mark.full),
        pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(7200)]),
    ],
)
def test_workflows_asleep_cost_next_to_nothing_and_wake_after_everything_was_killed(
    rig: Rig, asleep: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_to_sleep(rig, BEFORE, BEFORE)
    idle, before = _at_rest(rig)
    begun = time.monotonic()
    jobs = _put_to_sleep(rig, asleep, BEFORE + asleep)
    slept_s = time.monotonic() - begun
    busy, then = _at_rest(rig)
    packed = {part: resting(rig.system, part).packed for part in PACKING}
    cpu = {name: part - idle.get(name, 0.0) for name, part in busy.items()}
    begun = time.monotonic()
    with rig.system.all_killed():
        pass
    rig.system.wait_ready(600)
    ready_s = time.monotonic() - begun
    wait_resting(rig.system, BEFORE + asleep, 120 + asleep / A_SECOND)
    _, restarted = _at_rest(rig)
    with capsys.disabled():
        _show("asleep", then.more(before))
        _show("asleep after a restart", restarted.more(before))
        shown = {name: f"{100 * one:.2f} %" for name, one in cpu.items()}
        sys.stdout.write(
            f"{asleep} asleep after {slept_s:.0f} s, packed {packed}; CPU more: {sum(cpu.values()):.2%}: {shown}; "
            f"ready {ready_s:.1f} s\n"
        )
    woken = [*jobs][:: max(1, asleep // 20)]
    for tag in woken:
        until(lambda job=jobs[tag]: rig.system.signal(job, "go").status_code == 200, 60)
    rig.system.wait_ended([jobs[tag] for tag in woken], 120)
    assert [rig.external.count(tag) for tag in woken] == [1] * len(woken)
    assert sum(cpu.values()) < MOST_CPU
    for use in (then, restarted):
        assert sum(use.more(before).values()) < MOST_MIB.get(asleep, float("inf"))


def _show(when: str, mib: Mapping[str, float]) -> None:
    sys.stdout.write(
        f"{when}: {sum(mib.values()):.0f} MiB more: { {name: round(one, 1) for name, one in mib.items()} }\n"
    )


def _at_rest(rig: Rig) -> tuple[dict[str, float], Use]:
    """The share of a core that each part uses while nothing happens, and how it is then."""
    first = Use.of(rig)
    time.sleep(LOOKED_S)
    then = Use.of(rig)
    return {name: (now - first.cpu_s.get(name, now)) / LOOKED_S for name, now in then.cpu_s.items()}, then


def _put_to_sleep(rig: Rig, count: int, at_rest: int) -> dict[str, str]:
    """Tag → job; once so many are packed in each service."""
    tags = [fresh("asleep") for _ in range(count)]
    with ThreadPoolExecutor(8) as clients:
        jobs = dict(
            zip(tags, clients.map(lambda tag: rig.system.submit(flow_node("w", "sleeps", tag=tag)), tags), strict=True)
        )
    wait_resting(rig.system, at_rest, 120 + count / A_SECOND)
    return jobs
