"""What the bench computes from what it saw."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from aetheris.protocol.base.canonical import canonical
from aetheris.protocol.plan.graph import Kind, TaskGraph, check_graph
from aetheris.rigs.bench import tools, usage
from aetheris.rigs.bench.figures import CrashTimes, Measured, report
from aetheris.rigs.bench.flows import notes
from aetheris.rigs.bench.measurement import measure
from aetheris.rigs.bench.notes import Note, Tail, gaps_ms, notes_of, percentile, repeats
from aetheris.rigs.bench.settlement import settled
from aetheris.rigs.bench.workloads import Workload, chain, parallel, workload
from aetheris.sdk import Found, NotFound, ToolContext
from aetheris.testing import run_workflow


def test_gaps_are_between_calls_of_one_job_and_leave_other_jobs_out() -> None:
    lines = ["1000000 aetheris:j1:n0:0", "1500000 aetheris:j2:n0:0", "4000000 aetheris:j1:n1:0", "9 aetheris:warm:n0:0"]
    assert gaps_ms(notes_of(lines, ["j1", "j2"])) == [3.0]


def test_a_step_that_was_called_again_is_a_duplicate_also_under_another_attempt() -> None:
    lines = ["1 aetheris:j1:n0:0", "2 aetheris:j1:n0:1", "3 aetheris:j1:n1:0", "4 bench:j2:n0", "5 bench:j2:n0"]
    assert repeats(notes_of(lines, ["j1", "j2"])) == 2
    assert repeats(notes_of(lines, ["j1"])) == 1


def test_a_tail_counts_what_comes_after_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("before\n")
    tail = Tail(notes)
    with notes.open("a") as file:
        file.write("one\ntwo\nthr")
        file.flush()
        assert tail.look() == 2
        file.write("ee\n")
    assert (tail.look(), tail.look()) == (3, 3)


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
    fields = ["S", "3", *["0"] * 9, *[str(count * ticks) for count in (1, 2, 4, 8)], *["0"] * 5]
    assert usage.parse_stat(f"7 (a) b) {' '.join(fields)}") == (3, 15.0)


def test_memory_is_read_in_mib() -> None:
    assert usage.parse_rollup("00400000-7ff [rollup]\nRss:  2048 kB\nPss:  1024 kB\n") == usage.MemoryUse(2.0, 1.0)
    assert usage.memory({"me": os.getpid()})["me"].pss > 1
    assert usage.memory({"gone": 2**22 + 1})["gone"] == usage.MemoryUse(0, 0)


def test_cpu_time_is_that_of_the_family_but_not_of_who_has_a_name_of_its_own() -> None:
    with subprocess.Popen(
        ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; cat"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alone = usage.cpu_s({"me": os.getpid(), "child": child.pid})
        together = usage.cpu_s({"me": os.getpid()})
        child.kill()
    assert alone["child"] > 0
    assert together["me"] >= alone["me"] + alone["child"]
    assert usage.cpu_s({"gone": 2**22 + 1})["gone"] == 0.0


def test_a_workflow_of_the_bench_calls_its_tool_as_often_as_it_is_asked_to() -> None:
    plan = TaskGraph.model_validate(workload("W6", steps=3).plan())
    assert [(node.kind, node.tool, node.args) for node in plan.nodes] == [(Kind.WORKFLOW, notes.name, {"steps": 3})]
    called: list[str] = []
    run_workflow(notes, {"steps": 3}, fakes={tools.note: lambda ctx: {"note": called.append(ctx.node_id) or ""}})
    assert len(set(called)) == 3


async def test_a_note_is_a_line_that_its_probe_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_BENCH_FILE", str(tmp_path / "notes"))
    ctx = ToolContext("aetheris:j1:n0:0", 0, "k", "j1", "n0")
    result = await tools.note(ctx)
    assert len(canonical(result)) == 200
    assert isinstance(await tools.noted("aetheris:j1:n0:0"), Found)
    assert isinstance(await tools.noted("aetheris:j1:n0:1"), NotFound)


async def test_a_slow_note_is_found_by_the_same_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_BENCH_FILE", str(tmp_path / "notes"))
    await tools.note_slowly(ToolContext("aetheris:j1:n0:0", 0, "k", "j1", "n0"))
    assert isinstance(await tools.noted("aetheris:j1:n0:0"), Found)
    assert tools.note_slowly.asks is tools.noted


def test_the_report_divides_by_the_steps() -> None:
    chosen = workload("W1", 2, 5, 2)
    memory = {"planner-0": usage.MemoryUse(20.0, 10.0)}
    notes = [Note(0, "a", "n0"), Note(1_000_000, "a", "n1"), Note(4_000_000, "a", "n2")]
    shown = report(chosen, Measured(("a", "b"), 2.0, (1.0, 2.0), {"kafka": 0.001}, memory), notes)
    assert (shown["steps_per_s"], shown["cpu_us_per_step"]) == (5.0, {"kafka": 100.0})
    assert shown["between_steps_ms"] == {"p50": 1.0, "p99": 3.0}
    assert (shown["rss_mib"], shown["pss_mib"], shown["duplicates"]) == ({"planner-0": 20.0}, {"planner-0": 10.0}, 0)


def test_recovery_counts_from_the_kill_and_looks_only_at_what_came_after_the_end() -> None:
    chosen = workload("W5", 1, 3, 1)
    crash = CrashTimes(killed_ns=1_000_000_000, gone_ns=1_100_000_000, done_ns=4_000_000_000)
    notes = [Note(at, "a", step) for at, step in ((5, "n0"), (1_050_000_000, "n1"), (1_600_000_000, "n1"))]
    shown = report(chosen, Measured(("a",), 4.0, (4.0,), crash=crash), notes)
    assert (shown["kill_to_first_step_s"], shown["kill_to_done_s"], shown["duplicates"]) == (0.6, 3.0, 1)


class Noting:
    """A system whose jobs write their notes; its worker notes that it was killed."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._jobs = 0
        self.killed_after: int | None = None

    def pids(self) -> dict[str, int]:
        return {}

    async def job(self, workload: Workload) -> str:
        self._jobs += 1
        name = f"j{self._jobs}"
        for step in range(workload.steps):
            tools.append(self._notes, f"bench:{name}:n{step}")
            await asyncio.sleep(0.005)
        return name

    def crash_worker(self) -> None:
        self.killed_after = len(self._notes.read_text().splitlines())


async def test_the_worker_is_killed_once_within_the_run(tmp_path: Path) -> None:
    system = Noting(tmp_path / "notes")
    chosen = workload("W5", 4, 10, 4)
    measured = await measure(system, chosen, tmp_path / "notes")
    assert system.killed_after is not None
    assert 15 <= system.killed_after < 30
    assert measured.crash is not None
    assert len(measured.jobs) == 4


def test_a_system_has_settled_once_its_processes_rest_and_who_does_not_is_named() -> None:
    reported: list[str] = []

    def look(pid: int) -> bool:
        return asyncio.run(
            settled(lambda: {"worker": pid}, lambda _, what: reported.append(what), idle=0.02, within_s=0.1)
        )

    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as child:
        try:
            assert not look(child.pid)
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            assert look(child.pid)
        finally:
            child.kill()
    assert "worker" in reported[0]
    assert reported[1].startswith("after")
