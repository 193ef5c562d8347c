"""`make mutants`: every condition turned and taken out; looks at what has changed, fails where one is unexplained."""

import argparse
import sys
from pathlib import Path

import pytest

from tests.mutants.conditions import mutants
from tests.mutants.hunt import LEFT_OUT, TESTS, Hunt
from tests.mutants.known import Known, explained

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Look for what was not looked for as it is now, and compare the survivors with those that are explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="simulated where no test fails (default: 1000)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--again", action="store_true", help="also those of functions that are as they were")
    options = parser.parse_args()
    every = mutants()
    known = Known(every, Path(__file__).with_name("known.jsonl"))
    listed = explained(_ROOT / "docs" / "mutants.md")
    wanted = [one for one in every if options.only in one.name]
    left = wanted if options.again else [one for one in wanted if known.is_open(one, listed)]
    print(f"{len(every)} mutants, {len(left)} to look for", flush=True)  # noqa: T201  it is a command
    if left:
        hunt = Hunt(left, options.seeds, options.processes, known.note)
        places = [*TESTS, *(f"--ignore={path}" for path in LEFT_OUT)]
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures", *places], plugins=[hunt])
        known.write()
    return known.say(listed)


if __name__ == "__main__":
    sys.exit(main())
