"""`make mutants`: every condition turned and taken out; goes on where it was, fails where a survivor is unexplained."""

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.conditions import Mutant, mutants, source_of
from tests.mutants.hunt import SURVIVED, TESTS, Hunt

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "build" / "mutants.jsonl"
PAGE = REPOSITORY / "docs" / "mutants.md"
_LINE = re.compile(r"^\| `(?P<name>.+?)` \| (?P<why>.+) \|$", re.MULTILINE)


def main() -> int:
    """Look for what was not looked for yet, and compare the survivors with those that are explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="simulated where no test fails (default: 1000)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    options = parser.parse_args()
    wanted = [mutant for mutant in mutants() if options.only in mutant.name]
    known = _known(options.seeds)
    left = [mutant for mutant in wanted if _identity(mutant) not in known]
    print(f"{len(wanted)} mutants, {len(left)} to look for", flush=True)  # noqa: T201  it is a command
    if left:
        hunt = Hunt(left, options.seeds, options.processes, _note)
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures", *TESTS], plugins=[hunt])
        known = _known(options.seeds)
    return _said(wanted, known, complete=not options.only)


def _said(wanted: list[Mutant], known: dict[str, str], *, complete: bool) -> int:
    outcomes = {mutant.name: known.get(_identity(mutant), SURVIVED) for mutant in wanted}
    survivors = {name for name, outcome in outcomes.items() if outcome == SURVIVED}
    explained = _explained()
    for outcome, count in Counter(outcomes.values()).items():
        print(f"{count} {outcome}")  # noqa: T201  it is a command
    for name in sorted(survivors - explained):
        print(f"survived, unexplained: {name}")  # noqa: T201  it is a command
    stale = sorted(explained - survivors) if complete else []
    for name in stale:
        print(f"explained, but no survivor: {name}")  # noqa: T201  it is a command
    return 1 if survivors - explained or stale else 0


def _explained() -> set[str]:
    return {match["name"].replace("\\|", "|") for match in _LINE.finditer(PAGE.read_text())}


def _identity(mutant: Mutant) -> str:
    """A mutant of exactly this module's text."""
    return hashlib.sha256(f"{mutant.name}\n{source_of(mutant.module)}".encode()).hexdigest()[:16]


def _known(seeds: int) -> dict[str, str]:
    """Mutant → what became of it; who survived fewer seeds is looked for again."""
    if not RESULTS.exists():
        return {}
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {one["id"]: one["outcome"] for one in found if one["outcome"] != SURVIVED or one["seeds"] >= seeds}


def _note(mutant: Mutant, outcome: str, seeds: int) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    line = {"id": _identity(mutant), "name": mutant.name, "outcome": outcome, "seeds": seeds}
    with RESULTS.open("a") as file:
        file.write(f"{json.dumps(line)}\n")


if __name__ == "__main__":
    sys.exit(main())
