"""What judging costs grows as the stream does: twice the records, about twice the lines that are run."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from aetheris.proofs import verify
from tests.testkit import standalone
from tests.testkit.proof_histories import Log, node

FEW = 60
"""Twice as many must cost no more than twice as much, and a little."""


def other_ends(log: Log, count: int) -> None:
    """One try, of which each report says something else."""
    log.start("n1")
    for number in range(count):
        log.finish("n1", via=("executor", "probe")[number % 2], result={"n": number})


def other_calls(log: Log, count: int) -> None:
    """Each of a node of its own."""
    for number in range(count):
        log.start(f"n{number}", f"x{number}", key=f"k{number}")


def pauses(log: Log, count: int) -> None:
    """As many as calls, which come last: each is held against all of them."""
    for number in range(1, count + 1):
        log.add("job_paused", number=number, by="me")
        log.add("job_resumed", number=number, by="me")
    other_calls(log, count)


def freezes(log: Log, count: int) -> None:
    """As many as calls, which come last, each of a tool of its own; half of them end."""
    for number in range(1, count + 1):
        said: dict[str, Any] = {"scope": {"tool": f"t{number}"}, "number": number, "by": "me"}
        log.add("job_frozen", **said)
        if number % 2:
            log.add("job_unfrozen", **said)
    other_calls(log, count)


def checkpoints(log: Log, count: int) -> None:
    for number in range(count):
        log.add("state_checkpointed", as_of=10 * number, state_hash="x")


def undone_steps(log: Log, count: int) -> None:
    """Of a plan that grows by as many steps."""
    for number in range(count):
        log.revise(number + 1, node(f"b{number}"))
    for number in range(count):
        log.add("step_compensated", node_id=f"b{number}.undo", compensates=f"b{number}")
        log.add("node_finished", node_id=f"b{number}", result_type="compensated")


READERS: dict[str, Callable[[Log], object]] = {
    "proofs": lambda log: verify(log.records),
    "verify.py": lambda log: standalone.judged(log.records),
}
STREAMS: dict[str, Callable[[Log, int], None]] = {
    "other ends of one try": other_ends,
    "pauses before calls": pauses,
    "freezes before calls": freezes,
    "checkpoints": checkpoints,
    "steps that nothing has undone": undone_steps,
}


def lines_run(judge: Callable[[], object]) -> int:
    """How many lines of Python it takes; each turn of a comprehension counts as one."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        judge()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("stream", STREAMS)
def test_twice_the_stream_costs_twice_the_work(stream: str, reader: str) -> None:
    costs: list[int] = []
    for count in (FEW, 2 * FEW, 4 * FEW):
        log = Log()
        STREAMS[stream](log, count)
        costs.append(lines_run(lambda: READERS[reader](log)))  # noqa: B023  called at once
    first, second = costs[1] - costs[0], costs[2] - costs[1]
    assert second < 2.3 * first, costs
