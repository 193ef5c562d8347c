"""`aetheris chaos`, small: its schedule is its seed's, and under one fault of every kind the promise holds."""

import json
import subprocess
import sys
from itertools import product
from typing import Any

import pytest

from aetheris.rigs.chaos.report import WRONG
from aetheris.rigs.chaos.schedule import AMONG_BROKERS, ONCE, ROUTES, FaultKind, faults, job_plans


def test_a_seed_is_a_schedule() -> None:
    assert faults(7, 100, 200) == faults(7, 100, 200)
    assert faults(7, 100, 200) != faults(8, 100, 200)
    assert job_plans(7, 20) == job_plans(7, 20)
    once = faults(7, len(ONCE), 24)
    assert {fault.kind for fault in once} == {*FaultKind} - {*AMONG_BROKERS}
    among = faults(7, len(ONCE) + len(AMONG_BROKERS), 24, brokers=3)
    assert {fault.kind for fault in among} == {*FaultKind}
    assert {(fault.kind, fault.target) for fault in once} >= {*product((FaultKind.SLOW, FaultKind.RESET), ROUTES)}


def held(argv: list[str]) -> dict[str, Any]:
    """The report of a run, in which nothing is wrong."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout) if done.stdout else {}
    assert {name: report[name] for name in WRONG if report.get(name)} == {}
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return report


@pytest.mark.real
@pytest.mark.timeout(600)
def test_every_kind_of_fault_duplicates_loses_and_blocks_nothing() -> None:
    sizes = ["--jobs", "24", "--kills", str(len(ONCE)), "--seed", "11"]
    argv = [sys.executable, "-m", "aetheris.cli", "chaos", *sizes, "--json"]
    report = held(argv)
    assert report["expected"] == report["observed"] + report["waiting"] + report["called_off"] == 24 * 3
    assert len(report["faults"]) == len(ONCE)


@pytest.mark.nightly
@pytest.mark.real
@pytest.mark.timeout(600)
def test_three_brokers_whose_leaders_fall_duplicate_lose_and_block_nothing() -> None:
    sizes = ["--jobs", "16", "--kills", "6", "--seed", "13", "--brokers", "3"]
    argv = [sys.executable, "-m", "aetheris.cli", "chaos", *sizes, "--json"]
    held(argv)
