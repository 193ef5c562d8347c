"""What the comparison makes of its figures."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.bench.__main__ import chosen, chosen_workloads
from tests.bench.medians import SERVICES, compared, cpu_us, services_mib, spread
from tests.bench.page import Run, figures, number, page, placed
from tests.bench.plot import panels
from tests.bench.profile import REST, SAMPLER, functions, kind_of, shares
from tests.bench.systems import SYSTEMS, WORKLOADS


def w1(steps_per_s: float, **cpu: float) -> dict[str, Any]:
    """A run of W1."""
    memory = dict.fromkeys(SERVICES, 10.0)
    return {"steps_per_s": steps_per_s, "cpu_us_per_step": cpu, "rss_mib": memory, "pss_mib": memory}


def w5(done_s: float, duplicates: int) -> dict[str, Any]:
    """A run of W5."""
    return {"duplicates": duplicates, "kill_to_first_step_s": 0.5, "kill_to_done_s": done_s}


FOUND: dict[str, dict[str, list[dict[str, Any]]]] = {
    "aetheris": {"W1": [w1(3000, kafka=100, bench=900), w1(1000), w1(2000)], "W5": [w5(1.0, 0)]},
    "restate": {"W1": [w1(500), w1(700), w1(600)], "W5": [w5(2.0, 60)]},
    "dbos-postgres": {"W1": [w1(100)], "W5": [w5(1.5, 50)]},
    "skeleton-owed": {"W1": [w1(1500)]},
    "floor": {"W1": [w1(40_000)]},
}
WORKFLOWS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "workflow": {"W6": [{"ms_per_step": 0.9}]},
    "restate": {"W3": [{"ms_per_step": 1.26}]},
}


def test_the_median_and_the_range_are_over_the_runs() -> None:
    one = spread(FOUND, "restate", "W1", "steps_per_s")
    assert one is not None
    assert (one.median, one.least, one.largest) == (600, 500, 700)
    assert spread(FOUND, "restate", "W2", "job_ms", "p50") is None
    assert spread(FOUND, "nobody", "W1", "steps_per_s") is None


def test_the_clients_cpu_is_not_the_systems() -> None:
    used = cpu_us(FOUND, "aetheris")
    assert used is not None
    assert used.largest == 100


def test_the_services_are_counted_without_the_servers() -> None:
    held = services_mib(
        {"aetheris": {"W1": [w1(1) | {"rss_mib": {"kafka": 400.0, "ledger-0": 7.0}}]}}, "aetheris", "rss_mib"
    )
    assert held is not None
    assert held.median == 7


def test_the_best_peer_is_the_fastest_whatever_fast_means_and_never_the_floor() -> None:
    rows = {row.figure.what: row for row in compared(FOUND, ["restate", "dbos-postgres"])}
    assert (rows["W1, steps/s"].best, round(rows["W1, steps/s"].ratio, 2)) == ("restate", 3.33)
    assert (rows["W5, from kill to done, s"].best, rows["W5, from kill to done, s"].ratio) == ("dbos-postgres", 1.5)
    assert (rows["W1, steps/s"].ratio_at_best, rows["W5, from kill to done, s"].ratio_at_best) == (2.5, None)
    assert len(rows) == 2


def test_a_workflow_stands_beside_what_peers_do_in_code_anyway() -> None:
    (row,) = compared(WORKFLOWS, ["restate"])
    assert (row.figure.what, round(row.ratio, 2)) == ("W6, ms a step of 1,000", 1.4)
    assert "| Aetheris, a workflow | – | – | – | – | – | – | – | 0.9 / – |" in figures(WORKFLOWS, SYSTEMS)


def test_the_page_says_what_was_found_and_what_was_not() -> None:
    shown = page(Run(FOUND, 3, ["Restate, W2: TimeoutError: "], "2 cores", {"Kafka": "1"}, 60), SYSTEMS)
    assert "| Restate | 600 (500–700) | 0 | – | – | – | – | 60; 0.5 / 2 | – |" in shown
    assert "Not measured: Restate, W2: TimeoutError: ." in shown
    assert "LangGraph" not in shown
    assert "| W1, steps/s | 2,000 | Restate | 600 | 3.33 | 1.5 | 2.50 |" in shown


def test_the_page_is_placed_between_its_markers_and_nowhere_else() -> None:
    text = "<!-- a -->\nkept\n<!-- /a -->\n<!-- b -->\nold\n<!-- /b -->\nafter"
    assert placed(text, "b", "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="no <!-- a"):
        placed("no markers", "a", "new")


def test_a_panel_for_each_workload_that_was_measured() -> None:
    drawn = panels(FOUND, SYSTEMS)
    assert [panel["title"][:2] for panel in drawn] == ["W1", "W5"]
    assert ("Aetheris", 2000) in drawn[0]["bars"]


def test_numbers_say_three_digits() -> None:
    assert [number(value) for value in (0.01234, 1.5, 99.94, 100, 12345.6)] == [
        "0.0123",
        "1.5",
        "99.9",
        "100",
        "12,346",
    ]


def test_peers_and_workloads_are_chosen_by_name() -> None:
    assert [entry.name for entry in chosen("floor, restate")] == ["aetheris", "restate", "floor"]
    assert chosen("") == list(SYSTEMS)
    assert chosen_workloads("W3,W1") == ["W1", "W3", "W3x5"]
    assert chosen_workloads("W6") == ["W6", "W6x5"]
    assert chosen_workloads("") == list(WORKLOADS)
    with pytest.raises(typer.BadParameter, match="unknown: cadence"):
        chosen("cadence")
    with pytest.raises(typer.BadParameter, match="unknown: W9"):
        chosen_workloads("W9")


def test_a_sample_counts_for_the_innermost_kind_of_work() -> None:
    loop = "<module> (planner/__main__.py);Runner.run (asyncio/runners.py)"
    assert kind_of(loop) == REST
    assert kind_of(f"{loop};Pump.run (runtime/log/pump.py);_read (aiokafka/conn.py)") == "Kafka's client"
    assert (
        kind_of(f"{loop};Partition.run (runtime/worker/partition.py);apply (protocol/fold/rules.py)")
        == "fold and decide"
    )
    raw = f"{loop} 300\n{loop};put (runtime/redis/effects.py) 100\n"
    assert shares(raw) == {REST: 0.75, "Redis' client": 0.25}
    assert functions(raw, 8.0)["put (runtime/redis/effects.py)"] == (2.0, 2.0)
    assert functions(raw, 8.0)["Runner.run (asyncio/runners.py)"] == (6.0, 8.0)


_BURNING = """
import asyncio, os, signal, threading, time

def spend(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

def much():
    spend(0.3)

def little():
    spend(0.1)

def waits(come):
    come.wait()

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)  # as services do
    come = threading.Event()
    waiting = asyncio.create_task(asyncio.to_thread(waits, come))
    os.kill(os.getpid(), signal.SIGUSR1)
    much()
    await asyncio.to_thread(little)
    os.kill(os.getpid(), signal.SIGUSR2)
    come.set()
    await waiting

asyncio.run(main())
print(os.getpid())
"""


def test_samples_count_the_cpu_of_each_thread_and_no_waiting(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SAMPLER), "CPU_SAMPLES": str(tmp_path)}
    argv = (sys.executable, "-c", _BURNING)
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    raw = (tmp_path / done.stdout.strip()).read_text()
    found = {name.partition(" ")[0]: whole for name, (_, whole) in functions(raw, 100.0).items()}
    assert 2.0 < found["much"] / found["little"] < 4.5
    assert found["much"] + found["little"] > 90.0
    assert found.get("waits", 0.0) < 1.0
