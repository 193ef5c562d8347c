"""What an executor keeps to of a policy: behind its barrier nothing is made that was granted by an earlier one."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import PolicyActivation, PolicyBarrier
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.plan.graph import EffectKind
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.tool_executor.core.partition import EARLIER_POLICY, Drop, Partition
from aetheris.tool_executor.core.tries import DeclaredInvocation, Worker
from aetheris.tool_executor.handlers import ExecutorHandler
from tests.testkit.executor_bench import HandlerBench
from tests.testkit.histories import created, graph, planned
from tests.testkit.policies import ALLOW_ALL
from tests.unit.tool_executor.test_executor_core import CoreBench, run_on

PLAN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]})


class PolicyBench(CoreBench):
    """A partition that reads activations, too."""

    def __init__(self, activated: int = 0) -> None:
        super().__init__()
        self.activations = PolicyActivations()
        for _ in range(activated):
            self.activate()
        kinds: Any = (lambda _: None, lambda _: EffectKind.TOOL)
        self.core = Partition(Worker("w-1", "i-1"), *kinds, activations=self.activations)
        self.log(created(), planned(PLAN))

    def activate(self) -> None:
        said = {"policy": ALLOW_ALL, "policy_hash": hashlib.sha256(ALLOW_ALL.encode()).hexdigest()}
        order = {"number": self.activations.number + 1, "by": "olga", "at": ""} | said
        assert self.activations.take(PolicyActivation.model_validate(order))

    def barrier(self, number: int = 1) -> bool:
        self.offset += 1
        return self.core.passed(PolicyBarrier(number=number), self.offset)


def test_behind_a_barrier_what_an_earlier_policy_granted_is_dropped_and_what_that_one_granted_is_not() -> None:
    bench = PolicyBench()
    bench.activate()
    assert bench.barrier()
    assert bench.judge("a") == Drop(EARLIER_POLICY)
    bench.declared("a", activation=1)


def test_what_was_declared_before_the_barrier_was_read_is_not_made_behind_it() -> None:
    bench = PolicyBench()
    invocation = bench.declared("a")
    bench.barrier()
    assert bench.log(invocation.started).won, "the fold knows of no policy"
    assert bench.core.why_not(invocation) == EARLIER_POLICY


def test_what_started_before_the_barrier_is_made() -> None:
    bench = PolicyBench()
    bench.activate()
    invocation = bench.declared("a")
    assert bench.log(invocation.started).won
    assert bench.core.why_not(invocation) is None


def test_a_run_ends_at_the_barrier_of_a_policy_that_has_not_granted_it() -> None:
    bench = PolicyBench()
    first = bench.declared("a", "b", activation=1)
    bench.log(first.started)
    bench.barrier(1)
    assert isinstance(run_on(bench, first, {"v": 1}), DeclaredInvocation)
    bench = PolicyBench()
    first = bench.declared("a", "b", activation=1)
    bench.log(first.started)
    bench.barrier(2)
    assert run_on(bench, first, {"v": 1}) is None


def test_a_barrier_below_what_is_read_is_known_by_what_is_activated() -> None:
    assert PolicyBench(activated=2).judge("a", activation=1) == Drop(EARLIER_POLICY)
    PolicyBench(activated=2).declared("a", activation=2)


def test_a_barrier_of_what_nobody_has_activated_holds_nothing_once_all_is_read() -> None:
    bench = PolicyBench()
    assert not bench.barrier(7)
    assert bench.judge("a") == Drop(EARLIER_POLICY)
    bench.core.orders_known()
    bench.declared("a")


async def test_a_barrier_that_no_ledger_signed_holds_nothing_where_a_root_is_known(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.parts = dataclasses.replace(bench.parts, installation=("0" * 64,))
    bench.handler = ExecutorHandler(bench.parts)
    forged = PolicyBarrier(number=7)
    barrier = draft(Topic.JOBS_EVENTS, forged, key=forged.job_id, id="b", source="s", time="t")
    record = Record(Topic.JOBS_EVENTS, 0, 0, 0, barrier.key, barrier.headers, barrier.value)
    await bench.handler.handle({Topic.JOBS_EVENTS: [record]})
    assert not bench.tasks, "nobody has to look for its activation"
