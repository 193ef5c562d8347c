"""Looking for mutants: each in a process of its own, forked from one that has collected the tests, and simulated seeds.

The tests that call the changed function run first to last, the quickest first, until one fails; then seeds.
"""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from _pytest.runner import runtestprotocol

from aetheris.testkit.simulation.run import simulate
from tests.mutants.conditions import Mutant, noting

TESTS = tuple(f"tests/unit/{package}" for package in ("protocol", "ledger", "planner", "tool_executor"))
_LONGEST_TEST_S = 2.0
"""What takes longer is left out: seeds of the simulation show as much."""
FOUND_BY_TEST, FOUND_BY_SEED, ENDLESS, SURVIVED = "found by a test", "found by a seed", "never ended", "survived"
_SECONDS = 900.0
_CODES = {1: FOUND_BY_TEST, 2: FOUND_BY_SEED, 0: SURVIVED}

Found = Callable[[Mutant, str, int], None]
"""A mutant, what became of it, and how many seeds it would have had."""


@dataclass
class Hunt:
    """A pytest plugin that takes the place of its loop."""

    wanted: list[Mutant]
    seeds: int
    processes: int
    found: Found
    took_s: dict[str, float] = field(default_factory=dict[str, float])
    calls: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Test → the changed functions that it calls."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All mutants, a few at a time."""
        self._learn(session.items)
        running: dict[int, tuple[Mutant, float]] = {}
        for mutant in self.wanted:
            while len(running) >= self.processes:
                self._collect(running)
            running[_forked(lambda mutant=mutant: self._look_for(mutant, session.items))] = mutant, time.monotonic()
        while running:
            self._collect(running)
        return True

    def _collect(self, running: dict[int, tuple[Mutant, float]]) -> None:
        for pid, (mutant, begun) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() - begun > _SECONDS:
                os.kill(pid, signal.SIGKILL)
                done, status = os.waitpid(pid, 0)
            if done:
                del running[pid]
                exited = os.waitstatus_to_exitcode(status)
                self.found(mutant, _CODES.get(exited, ENDLESS), self.seeds)
        time.sleep(0.02)

    def _learn(self, items: Iterable[pytest.Item]) -> None:
        """Which tests call which function, and how long they take; those that fail as it is are left out."""
        called: set[str] = set()
        with noting(called):
            for item in items:
                called.clear()
                begun = time.monotonic()
                failed = _fails(item)
                took_s = time.monotonic() - begun
                if called and not failed and took_s < _LONGEST_TEST_S:
                    self.took_s[item.nodeid], self.calls[item.nodeid] = took_s, set(called)

    def _look_for(self, mutant: Mutant, items: Iterable[pytest.Item]) -> int:
        name = f"{mutant.module}.{mutant.function}"
        fitting = [item for item in items if name in self.calls.get(item.nodeid, ())]
        mutant.apply()
        for item in sorted(fitting, key=lambda item: self.took_s[item.nodeid]):
            if _fails(item):
                return 1
        return 2 if any(simulate(seed).broken for seed in range(self.seeds)) else 0


def _fails(item: pytest.Item) -> bool:
    """Whether a test fails, by itself: every fixture of it is made and ended."""
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _forked(look: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        code = look()
    except BaseException:  # noqa: BLE001  whatever it is, the mutant was seen
        code = 1
    finally:
        os._exit(code)
