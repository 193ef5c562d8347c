"""What became of the mutants, by function and the hash of its text: who looks again, looks only at what has changed."""

import json
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.mutants.conditions import Mutant, hashes
from tests.mutants.hunt import SEED, SURVIVED, TEST

_LINE = re.compile(r"^\| `(?P<name>.+?)` \| (?P<why>.+) \|$", re.MULTILINE)
NOT_LOOKED_FOR = "not looked for"


@dataclass
class _Line:
    """A function: how many of its mutants tests have found, and which only seeds did, or nothing."""

    function: str
    source: str
    tests: int = 0
    seeds: list[str] = field(default_factory=list[str])
    survived: list[str] = field(default_factory=list[str])


class Known:
    """The file, as far as it is about functions that are as they were then."""

    def __init__(self, mutants: Sequence[Mutant], path: Path) -> None:
        self._mutants, self._path, self._hashes = mutants, path, hashes()
        self._outcomes: dict[str, str] = {}
        self._at = ""
        lines = [_Line(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
        for line in lines:
            self._take(line)

    def is_open(self, mutant: Mutant, explained: Set[str]) -> bool:
        """Whether it is to be looked for: not yet, or it survived and nobody says why."""
        outcome = self._outcomes.get(mutant.name)
        return outcome is None or (outcome == SURVIVED and mutant.name not in explained)

    def note(self, mutant: Mutant, outcome: str, where: str) -> None:
        """What became of one; what is known is written whenever another function is at hand."""
        if mutant.where != self._at:
            self.write()
        self._at = mutant.where
        self._outcomes[mutant.name] = outcome
        print(f"{outcome}: {mutant.name} {where}", flush=True)  # noqa: T201  it is a command

    def write(self) -> None:
        """The functions that were looked at whole."""
        lines = [json.dumps(asdict(line)) for line in self._lines()]
        self._path.write_text("".join(f"{line}\n" for line in lines))

    def say(self, explained: Set[str]) -> int:
        """How many became what; 1 where one survived and nobody says why, or somebody says why and none did."""
        outcomes = {one.name: self._outcomes.get(one.name, NOT_LOOKED_FOR) for one in self._mutants}
        for outcome, count in sorted(Counter(outcomes.values()).items()):
            print(f"{count} {outcome}")  # noqa: T201  it is a command
        survivors = {name for name, outcome in outcomes.items() if outcome == SURVIVED}
        gone = {name for name in explained if outcomes.get(name) not in (SURVIVED, NOT_LOOKED_FOR)}
        for name in sorted(survivors - explained):
            print(f"survived, unexplained: {name}")  # noqa: T201  it is a command
        for name in sorted(gone):
            print(f"explained, but no survivor: {name}")  # noqa: T201  it is a command
        return 1 if survivors - explained or gone else 0

    def _take(self, line: _Line) -> None:
        of = [one.name for one in self._mutants if one.where == line.function]
        others = [f"{line.function}: {name}" for name in (*line.seeds, *line.survived)]
        if self._hashes.get(line.function) != line.source or line.tests + len(others) != len(of):
            return
        self._outcomes |= dict.fromkeys(of, TEST) | dict.fromkeys(others[: len(line.seeds)], SEED)
        self._outcomes |= dict.fromkeys(others[len(line.seeds) :], SURVIVED)

    def _lines(self) -> list[_Line]:
        by_function: dict[str, list[Mutant]] = {}
        for mutant in self._mutants:
            by_function.setdefault(mutant.where, []).append(mutant)
        return [
            self._line(function, of)
            for function, of in sorted(by_function.items())
            if all(one.name in self._outcomes for one in of)
        ]

    def _line(self, function: str, of: Sequence[Mutant]) -> _Line:
        became: dict[str, list[str]] = {TEST: [], SEED: [], SURVIVED: []}
        for mutant in of:
            became[self._outcomes[mutant.name]].append(mutant.name.removeprefix(f"{function}: "))
        return _Line(function, self._hashes[function], len(became[TEST]), became[SEED], became[SURVIVED])


def explained(page: Path) -> set[str]:
    """The survivors that the page lists."""
    return {match["name"].replace("\\|", "|") for match in _LINE.finditer(page.read_text())}
