"""Looking for mutants: each in a process forked from one that has imported everything and collected the tests.

Once, nothing changed, every condition notes what it comes to in each test and each seed. A mutant is then looked for
only where its condition would have come to something else: in tests, the quickest first, until one fails; then in
seeds, and of those only in the ones in which its function would have said or done something else (beside.py).
"""

import gc
import json
import os
import resource
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from _pytest.runner import runtestprotocol

from aetheris.testkit.simulation.run import simulate
from tests.mutants.beside import beside, is_plain
from tests.mutants.conditions import Mutant, Seen, watching

_UNIT = "tests/unit"
TESTS = tuple(
    f"{_UNIT}/{one}" for one in ("protocol", "views", "ledger", "planner", "tool_executor", "gateway", "verifier")
)
LEFT_OUT = tuple(
    f"{_UNIT}/{one}.py"
    for one in ("tool_executor/test_worker_lock", "protocol/test_fold_properties", "ledger/test_stops")
)
"""All that they hold takes too long."""
_LONGEST_TEST_S = 0.3
"""What takes longer is left out: seeds of the simulation show as much."""
TEST, SEED, SURVIVED = "test", "seed", "survived"
_MEMORY = 6 << 30

Found = Callable[[Mutant, str, str], None]
"""A mutant, what became of it, and where it was found."""


@dataclass
class Hunt:
    """A pytest plugin that takes the place of its loop."""

    wanted: Sequence[Mutant]
    seeds: int
    processes: int
    found: Found
    took_s: dict[str, float] = field(default_factory=dict[str, float])
    items: dict[str, pytest.Item] = field(default_factory=dict[str, pytest.Item])
    tests: dict[tuple[str, int, bool], set[str]] = field(default_factory=lambda: defaultdict(set))
    """What a condition comes to → the tests in which it does."""
    simulated: dict[tuple[str, int, bool], set[str]] = field(default_factory=lambda: defaultdict(set))
    """What a condition comes to → the seeds in which it does."""
    differs: dict[Mutant, set[str]] = field(default_factory=dict[Mutant, set[str]])
    """Mutants of plain functions → the seeds in which they say or do something else."""
    good: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Function → the tests, and the seeds, that have found mutants of it."""

    def pytest_sessionstart(self) -> None:
        """Examples are the same each time, and none is made smaller."""
        import hypothesis  # its plugin wants to be first

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        usual = hypothesis.settings.get_profile("any machine")
        hypothesis.settings.register_profile("mutants", usual, phases=phases, derandomize=True, database=None)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All mutants, a few at a time."""
        begun = time.monotonic()
        self._learn(session.items)
        print(f"\n{len(self.items)} tests come to a condition: {time.monotonic() - begun:.0f} s", flush=True)  # noqa: T201
        left = self._each(self.wanted, self._in_tests, TEST)
        print(f"\n{len(left)} left for seeds: {time.monotonic() - begun:.0f} s", flush=True)  # noqa: T201
        if left:
            self._learn_seeds(left)
            left = self._each(left, self._in_seeds, SEED)
        for mutant in left:
            self.found(mutant, SURVIVED, "")
        return True

    # what comes to what

    def _learn(self, items: Iterable[pytest.Item]) -> None:
        """What conditions come to in which test, and how long it takes; those that fail as it is are left out."""
        with watching() as seen:
            for item in items:
                seen.clear()
                begun = time.process_time()
                failed = _fails(item)
                took_s = time.process_time() - begun
                if seen and not failed and took_s < _LONGEST_TEST_S:
                    self.items[item.nodeid], self.took_s[item.nodeid] = item, took_s
                    _note(self.tests, seen, item.nodeid)

    def _learn_seeds(self, left: Sequence[Mutant]) -> None:
        """What conditions come to in which seed; and which mutants of plain functions differ in it."""
        plain = [mutant for mutant in left if is_plain(mutant)]
        self.differs = {mutant: set() for mutant in plain}
        with watching() as seen, beside(plain) as different:
            for seed in map(str, range(self.seeds)):
                seen.clear()
                different.clear()
                begun = time.process_time()
                simulate(int(seed))
                self.took_s[seed] = time.process_time() - begun
                _note(self.simulated, seen, seed)
                for mutant in different:
                    self.differs[mutant].add(seed)

    # one mutant

    def _in_tests(self, mutant: Mutant) -> str | None:
        fitting = {test for turn in mutant.turns for test in self.tests[turn]}
        for test in self._quickest(mutant, fitting):
            with _at_most(5 + 10 * self.took_s[test]):
                if _fails(self.items[test]):
                    return test
        return None

    def _in_seeds(self, mutant: Mutant) -> str | None:
        fitting = self.differs.get(mutant)
        if fitting is None:
            fitting = {seed for turn in mutant.turns for seed in self.simulated[turn]}
        for seed in self._quickest(mutant, fitting):
            with _at_most(5 + 10 * self.took_s[seed]):
                if simulate(int(seed)).broken:
                    return seed
        return None

    def _quickest(self, mutant: Mutant, names: Iterable[str]) -> list[str]:
        """First who has found the most of its function."""
        good = self.good[mutant.where]
        return sorted(names, key=lambda name: (-good[name], self.took_s[name]))

    # all of them

    def _each(self, mutants: Iterable[Mutant], look: Callable[[Mutant], str | None], how: str) -> list[Mutant]:
        """Those that were not found."""
        left: list[Mutant] = []
        running: dict[int, tuple[Mutant, int]] = {}
        gc.collect()
        gc.freeze()
        for mutant in mutants:
            while len(running) >= self.processes:
                left += self._collected(running, how)
            pid, told = _forked(lambda mutant=mutant: _changed(mutant, look))
            running[pid] = mutant, told
        while running:
            left += self._collected(running, how)
        return left

    def _collected(self, running: dict[int, tuple[Mutant, int]], how: str) -> Iterator[Mutant]:
        """The next that ends."""
        pid, _ = os.wait()
        mutant, told = running.pop(pid)
        with os.fdopen(told, "rb") as pipe:
            text = pipe.read()
        where = json.loads(text) if text else "its end"
        if where is None:
            print(f"left: {mutant.name}", flush=True)  # noqa: T201  it is a command
            yield mutant
        else:
            self.good[mutant.where][where] += 1
            self.found(mutant, how, where)


def _note(places: dict[tuple[str, int, bool], set[str]], seen: Seen, place: str) -> None:
    for one in seen:
        places[one].add(place)


def _changed(mutant: Mutant, look: Callable[[Mutant], str | None]) -> str | None:
    mutant.apply()
    return look(mutant)


def _fails(item: pytest.Item) -> bool:
    """Whether a test fails, by itself: every fixture of it is made and ended."""
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


@contextmanager
def _at_most(seconds: float) -> Generator[None]:
    """A mutant that goes round and round, or waits for what never comes, ends its process."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 60 + seconds * 5)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _forked(look: Callable[[], str | None]) -> tuple[int, int]:
    """Its process, and the end of a pipe that tells what came of it; a process that ends without a word was seen."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        return pid, told
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        os.write(tell, json.dumps(look()).encode())
    finally:
        os._exit(0)
