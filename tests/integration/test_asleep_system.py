"""Workflows that sleep: what many of them cost while nothing happens, and how soon all is there again."""

import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from aetheris.protocol.base.topics import Topic
from aetheris.rigs.bench import usage
from tests.testkit.attempts import fresh
from tests.testkit.external_flows import flow_node
from tests.testkit.external_server import until
from tests.testkit.rig import Rig, running_rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

MODULES = "tests.testkit.external_tools,tests.testkit.external_flows"
LOOKED_S = 30.0
RESTED_S = 15.0
RESTED_A_S = 50
"""So many fall into their rest a second, at least, once a few seconds have passed in which nobody asked for them."""
MOST_CPU = 0.05
"""Of a core, for all who sleep, in all processes: it is next to nothing, and what else the machine does shows in it."""


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
        return {name: now - before.rss_mib.get(name, 0.0) for name, now in self.rss_mib.items()}


@pytest.fixture
def rig(tmp_path: Path) -> Generator[Rig]:
    env = {
        "AETHERIS_TOOLS": MODULES,
        "AETHERIS_WORKFLOW_IDLE_S": "1",
        "AETHERIS_JOBS_IN_FLIGHT": "11000",
        "AETHERIS_TRACE_SAMPLE": "0",
    }
    with running_rig(tmp_path, env) as rig:
        rig.system.wait_ready()
        yield rig


@pytest.mark.parametrize(
    "asleep", [100, pytest.param(1_000, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.full)]
)
def test_workflows_asleep_cost_next_to_nothing_and_wake_after_everything_was_killed(
    rig: Rig, asleep: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_to_sleep(rig, 20)
    idle, before = _at_rest(rig)
    begun = time.monotonic()
    jobs = _put_to_sleep(rig, asleep)
    slept_s = time.monotonic() - begun
    time.sleep(RESTED_S + asleep / RESTED_A_S)
    busy, then = _at_rest(rig)
    more = {name: round(mib, 1) for name, mib in then.more(before).items()}
    cpu = {name: part - idle.get(name, 0.0) for name, part in busy.items()}
    begun = time.monotonic()
    with rig.system.all_killed():
        pass
    rig.system.wait_ready(120)
    ready_s = time.monotonic() - begun
    with capsys.disabled():
        shown = {name: f"{100 * one:.2f} %" for name, one in cpu.items()}
        sys.stdout.write(
            f"{asleep} asleep after {slept_s:.0f} s; {sum(more.values()):.0f} MiB more: {more}; "
            f"CPU more: {sum(cpu.values()):.2%}: {shown}; ready {ready_s:.1f} s\n"
        )
    woken = [*jobs][:: max(1, asleep // 20)]
    for tag in woken:
        until(lambda job=jobs[tag]: rig.system.signal(job, "go").status_code == 200, 60)
    rig.system.wait_ended([jobs[tag] for tag in woken], 120)
    assert [rig.external.count(tag) for tag in woken] == [1] * len(woken)
    assert sum(cpu.values()) < MOST_CPU


def _at_rest(rig: Rig) -> tuple[dict[str, float], Use]:
    """The share of a core that each part uses while nothing happens, and how it is then."""
    first = Use.of(rig)
    time.sleep(LOOKED_S)
    then = Use.of(rig)
    return {name: (now - first.cpu_s.get(name, now)) / LOOKED_S for name, now in then.cpu_s.items()}, then


def _put_to_sleep(rig: Rig, count: int) -> dict[str, str]:
    """Tag → job; once nothing happens any more."""
    tags = [fresh("asleep") for _ in range(count)]
    with ThreadPoolExecutor(8) as clients:
        jobs = dict(
            zip(tags, clients.map(lambda tag: rig.system.submit(flow_node("w", "sleeps", tag=tag)), tags), strict=True)
        )
    ends: list[object] = [None]

    def is_still() -> bool:
        time.sleep(3)
        ends.append(rig.system.ends(Topic.JOBS_EVENTS, Topic.TOOLS_GRANTS))
        return ends[-1] == ends[-2]

    until(is_still, 900)
    return jobs
