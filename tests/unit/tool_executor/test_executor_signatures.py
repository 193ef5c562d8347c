"""Whose records the executor goes by: under a root that it knows, what their writers have signed."""

from dataclasses import replace
from pathlib import Path

import pytest

from aetheris.protocol.messages import events as ev
from aetheris.tool_executor.handlers import ExecutorHandler
from tests.testkit.executor_bench import HandlerBench
from tests.testkit.histories import JOB, created, graph, planned


async def test_where_a_root_is_named_a_job_that_nobody_signed_is_none(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.handler = ExecutorHandler(replace(bench.parts, installation=("0" * 64,)))
    await bench.grant("act")
    await bench.settle()
    assert not any(isinstance(event, ev.ToolInvocationStarted) for event in bench.events())
    assert list(bench.handler.live()) == []


async def test_a_job_under_a_root_that_is_not_named_is_kept_for_who_knows_it(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.write(created().model_copy(update={"installation": "0" * 64}), planned(graph({"id": "a"})))
    await bench.read()
    assert list(bench.handler.live()) == [(JOB, 0)]
    assert not any(isinstance(event, ev.ToolInvocationStarted) for event in bench.events())


@pytest.mark.parametrize("known", [True, False])
async def test_its_own_end_counts_in_a_job_that_it_knows(tmp_path: Path, known: bool) -> None:
    """In any other nobody has judged who wrote it: else whoever may append would end every executor."""
    bench, said = HandlerBench(tmp_path), list[str]()
    bench.handler = ExecutorHandler(replace(bench.parts, stand_down=said.append))
    about = {"job_id": JOB, "node_id": "a", "idempotency_key": "k" * 64, "worker_id": "w", "incarnation": "i"}
    if known:
        await bench.write(created())
    await bench.write(ev.WorkerEnded.model_validate(about | {"how": "human"}))
    await bench.read()
    assert said == (["human"] if known else [])
