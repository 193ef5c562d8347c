"""What the bench computes from what it saw."""

import os
from pathlib import Path

import pytest

from aetheris.cli.bench import cpu, tools
from aetheris.cli.bench.runner import Measured, report
from aetheris.cli.bench.workloads import chain, gaps_ms, parallel, percentile, workload
from aetheris.protocol.canonical import canonical
from aetheris.protocol.plan import TaskGraph, check_graph
from aetheris.sdk import Found, NotFound, ToolContext


def test_gaps_are_between_calls_of_one_job_and_leave_other_jobs_out() -> None:
    lines = ["1000000 aetheris:j1:n0:0", "1500000 aetheris:j2:n0:0", "4000000 aetheris:j1:n1:0", "9 aetheris:warm:n0:0"]
    assert gaps_ms(lines, ["j1", "j2"]) == [3.0]


def test_percentiles_by_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (50.0, 99.0, 7.0)
    assert percentile([], 50) is None


def test_plans_are_what_the_workloads_say() -> None:
    nodes = TaskGraph.model_validate(chain(3)).nodes
    assert check_graph(nodes) == ("n0", "n1", "n2")
    assert [node.depends_on for node in nodes] == [(), ("n0",), ("n1",)]
    assert all(not node.depends_on for node in TaskGraph.model_validate(parallel(3)).nodes)
    assert (workload("W2", None, None, 100).in_flight, workload("W1", None, None, 100).in_flight) == (1, 100)


def test_a_name_with_a_parenthesis_does_not_shift_the_fields() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(ticks), str(2 * ticks), *["0"] * 5]
    assert cpu.parse_stat(f"7 (a) b) {' '.join(fields)}") == 3.0


def test_cpu_time_of_a_process_that_has_ended_is_none() -> None:
    assert cpu.cpu_s({"gone": 2**22 + 1, "me": os.getpid()})["gone"] == 0.0


async def test_a_note_is_a_line_that_its_probe_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_BENCH_FILE", str(tmp_path / "notes"))
    ctx = ToolContext("aetheris:j1:n0:0", 0, "k", "j1", "n0")
    result = await tools.note(ctx, text="x")
    assert len(canonical(result)) == 200
    assert isinstance(await tools.noted("aetheris:j1:n0:0"), Found)
    assert isinstance(await tools.noted("aetheris:j1:n0:1"), NotFound)


def test_the_report_divides_by_the_steps() -> None:
    chosen = workload("W1", 2, 5, 2)
    shown = report(chosen, Measured(("a", "b"), 2.0, (1.0, 2.0), {"kafka": 0.001}), [1.0, 3.0], runs=True)
    assert (shown["steps_per_s"], shown["cpu_us_per_step"]) == (5.0, {"kafka": 100.0})
    assert shown["between_steps_ms"] == {"p50": 1.0, "p99": 3.0}
