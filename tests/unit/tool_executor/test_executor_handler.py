"""The executor's edge without a broker: a partition fed by hand, and what it appends."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aetheris.protocol.base.keys import trace_id
from aetheris.protocol.base.records import Group
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.redis.client import RedisUnavailable
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.tool_executor.effect_writer import EffectWriter
from aetheris.tool_executor.handlers import ExecutorHandler
from aetheris.tool_executor.slots import Slots
from tests.testkit.executor_bench import NOWHERE, OTHER, OTHERS, HandlerBench
from tests.testkit.histories import JOB, about, finished


async def test_what_was_declared_and_not_read_back_is_reported_as_not_executed(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.handler.close()
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.outcome, last.error) == (Outcome.RETRYABLE, "NotExecuted: the executor stopped before it")
    assert isinstance(bench.events()[-2], ev.ToolInvocationStarted)


async def test_a_start_that_is_read_after_its_partition_came_back_is_said_not_to_have_run(tmp_path: Path) -> None:
    """As where a leader is away: the lease lapses, the call is parked, and nobody waits for its `started` any more."""
    for is_parked, is_restored in itertools.product((False, True), (False, True)):
        bench = HandlerBench(tmp_path)
        await bench.grant("act")
        invocation_id = (await bench.declared()).invocation_id
        if is_parked:
            await bench.write(about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="nobody knows"))
        await bench.come_back(is_restored=is_restored)
        await bench.settle()
        (recorded,) = [event for event in bench.events() if isinstance(event, ev.ToolInvocationFinished)]
        assert recorded.invocation_id == invocation_id
        assert (recorded.outcome, recorded.error, recorded.uncalled) == (
            Outcome.RETRYABLE,
            "NotExecuted: its partition was given back before the call",
            True,
        )


@pytest.mark.parametrize("lie", [None, "human", "ledger", "executor"])
async def test_of_a_call_that_was_begun_it_is_never_said(tmp_path: Path, lie: str | None) -> None:
    """Its report is lost; a void word about its end changes nothing."""
    bench = HandlerBench(tmp_path)
    bench.refuses = lambda group: _has("output_hash")(group) or _has("error_class")(group)
    await bench.grant("act")
    await bench.settle()
    invocation_id = (await bench.declared()).invocation_id
    bench.refuses = lambda _group: False
    if lie is not None:
        await bench.write(finished("b", invocation_id, outcome="permanent_failure", via=lie))
    await bench.come_back(is_restored=True)
    await bench.settle()
    assert "NotExecuted" not in str([event.model_dump() for event in bench.events()])


async def test_of_a_job_that_moved_away_only_what_has_no_end_in_the_log_stays_known(tmp_path: Path) -> None:
    """Nobody here will see it sealed."""
    ended, doubted = HandlerBench(tmp_path), HandlerBench(tmp_path)
    await ended.grant("act", "ab")
    await ended.settle()
    assert len(ended.parts.performer.begun[JOB]) == 2, "a repeat of its `started` may still be read"
    await ended.handler.close()
    assert ended.parts.performer.begun == {}
    await doubted.grant("lose")
    invocation_id = (await doubted.declared()).invocation_id
    await doubted.settle()
    await doubted.handler.close()
    assert doubted.parts.performer.begun == {JOB: {invocation_id: False}}


async def test_a_call_that_ends_after_its_job_moved_away_is_forgotten_with_its_report(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    await bench.read()  # it won, and is about to be called
    invocation_id = next(iter(bench.parts.performer.begun[JOB]))
    await bench.handler.close()
    assert bench.parts.performer.begun == {JOB: {invocation_id: False}}
    await asyncio.gather(*bench.tasks)
    assert isinstance(bench.events()[-1], ev.CommandCommitted | ev.ToolInvocationFinished | ev.StateChanged)
    assert bench.parts.performer.begun == {}


async def test_a_call_that_ends_while_its_partition_is_restored_is_no_stray(tmp_path: Path) -> None:
    """The end of what is read then was asked for before the report came."""
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    await bench.read()  # it won, and is about to be called
    await bench.handler.close()
    bench.handler = ExecutorHandler(bench.parts)
    bench.handler.fold(bench.records)
    await asyncio.gather(*bench.tasks)
    assert bench.parts.performer.begun == {}
    await bench.handler.restored()
    await bench.settle()
    assert "NotExecuted" not in str([event.model_dump() for event in bench.events()])


async def test_what_was_taken_away_before_the_call_is_not_called(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    invocation_id = (await bench.declared()).invocation_id
    reopened = about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=2, by="policy")
    await bench.write(reopened)
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.error, last.uncalled) == ("NotExecuted: superseded before the call", True)


async def test_what_lies_behind_a_record_that_nobody_here_can_read_is_not_called(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act")
    await bench.declared()
    headers = dict(bench.records[0].headers) | {"ce_type": b"io.aetheris.policy_allowed.v2"}
    bench.records.append(bench.records[0].replaced(headers=tuple(headers.items()), offset=len(bench.records)))
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.ToolInvocationFinished)
    assert (last.outcome, last.error) == (Outcome.RETRYABLE, "NotExecuted: the job waits for a newer version")


def fill(slots: Slots, many: int) -> None:
    """Nobody holds one, and now another tenant so many."""
    assert slots.taken == 0
    for _ in range(many):
        slots.take(OTHER)


def _has(name: str) -> Callable[[Group], bool]:
    return lambda group: any(name.encode() in one.value for one in group)


async def test_of_a_call_whose_report_is_refused_in_any_form_is_said_that_nobody_knows(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.refuses = _has("output_hash")
    await bench.grant("act", "ab")
    await bench.settle()
    last = bench.events()[-1]
    assert isinstance(last, ev.InvocationInDoubt)
    assert last.error_class == "ReportRefused"
    fill(bench.slots, 8)


async def test_a_try_that_can_not_be_declared_is_not_made_and_holds_nothing(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.refuses = _has("external_key")
    await bench.grant("act")
    await bench.settle()
    assert not any(isinstance(event, ev.ToolInvocationStarted | ev.ToolInvocationFinished) for event in bench.events())
    assert bench.handler.low_water(Topic.TOOLS_GRANTS) is None
    fill(bench.slots, 8)


async def test_slots_come_back_and_grants_are_discharged_whatever_becomes_of_a_try(tmp_path: Path) -> None:
    for name in ("act", "lose"):
        bench = HandlerBench(tmp_path)
        await bench.grant(name)
        assert bench.handler.low_water(Topic.TOOLS_GRANTS) == 0
        await bench.settle()
        assert bench.handler.low_water(Topic.TOOLS_GRANTS) is None
        fill(bench.slots, 8)
        assert not bench.slots.may_take(OTHER)


async def test_the_planner_is_woken_by_the_last_of_many_and_by_each_of_few(tmp_path: Path) -> None:
    alone = HandlerBench(tmp_path)
    await alone.grant("act")
    await alone.settle()
    assert alone.wake_up.rung == ["planner"]

    for others_end in (False, True):
        bench = HandlerBench(tmp_path)
        fill(bench.slots, OTHERS)
        await bench.grant("act")
        await bench.declared()
        if others_end:  # in the same append as the one looked at

            def all_end(slots: Slots = bench.slots) -> None:
                for _ in range(OTHERS):
                    slots.release(OTHER)

            bench.after_append = all_end
        await bench.settle()
        assert bench.wake_up.rung == (["planner"] if others_end else [])


async def test_spans_are_made_for_sampled_keys_and_for_those_in_doubt(tmp_path: Path) -> None:
    for name, sample, expected in (
        ("act", 1.0, ["begin", "put_effect", "execute_tool act"]),
        ("act", 0.0, []),
        ("lose", 0.0, ["execute_tool lose"]),
    ):
        bench = HandlerBench(tmp_path, sample)
        key = await bench.grant(name)
        await bench.settle()
        assert sorted(span.name for span in bench.spans) == sorted(expected)
        assert all(span.place.trace_id.hex() == trace_id(key) for span in bench.spans)
        said = [word for one in bench.events() if (word := getattr(one, "word", None)) is not None]
        assert not any(word in str(bench.spans) for word in said)


class _Slow(EffectStore):
    """Keeps nothing before it may."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, 60)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
        self.asked.set()
        await self.may.wait()


async def test_what_is_withdrawn_while_an_effect_is_kept_is_not_declared_any_more(tmp_path: Path) -> None:
    store = _Slow()
    bench = HandlerBench(tmp_path, store=store)
    await bench.grant("act", "ab")
    await bench.declared()
    await bench.read()
    await store.asked.wait()
    await bench.handler.close()
    store.may.set()
    await asyncio.gather(*bench.tasks)
    nodes = [event.node_id for event in bench.events() if isinstance(event, ev.ToolInvocationStarted)]
    done = [event.node_id for event in bench.events() if isinstance(event, ev.CommandCommitted)]
    reported = [event.node_id for event in bench.events() if isinstance(event, ev.ToolInvocationFinished)]
    await bench.heartbeat.beat()
    assert (nodes, reported, done) == (["a"], ["a"], ["a"])
    assert (bench.slots.taken, bench.renewals.keys) == (0, [])


async def test_the_nodes_of_a_run_are_called_one_after_the_other(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    await bench.grant("act", "abc")
    await bench.settle()
    ends = (ev.ToolInvocationStarted, ev.ToolInvocationFinished)
    reported = [(event.event_type[16:], event.node_id) for event in bench.events() if isinstance(event, ends)]
    assert reported == [(what, node) for node in "abc" for what in ("started", "finished")]
    assert bench.slots.taken == 0


class _Store(EffectStore):
    """Counts pipelines; may be down."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, 60)
        self.groups: list[int] = []
        self.down = False

    async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
        await asyncio.sleep(0)
        if self.down:
            raise RedisUnavailable
        self.groups.append(len(effects))


async def test_effects_that_come_together_are_written_together() -> None:
    store = _Store()
    writer = EffectWriter(store, SystemClock(), 0.2, 60)
    effects = [EffectEntry("j", str(number), "n", b"{}") for number in range(5)]
    assert await asyncio.gather(*(writer.put(effect) for effect in effects)) == [True] * 5
    assert store.groups == [5]
    assert await writer.put(effects[0])
    store.down = True
    assert await asyncio.gather(*(writer.put(effect) for effect in effects)) == [False] * 5
    store.down = False
    assert not await writer.put(effects[0]), "a store that failed is left alone for a while"


async def test_a_failure_that_nobody_expects_reaches_whoever_waits_for_an_effect() -> None:
    class Broken(EffectStore):
        async def put(self, effects: Sequence[EffectEntry], deadline_s: float | None = None) -> None:  # noqa: ARG002
            raise ZeroDivisionError

    writer = EffectWriter(Broken(NOWHERE, 60), SystemClock(), 0.2, 60)
    for _ in range(2):  # and the next one is not left waiting either
        found = await asyncio.gather(
            *(writer.put(EffectEntry("j", key, "n", b"{}")) for key in "ab"), return_exceptions=True
        )
        assert [type(one) for one in found] == [ZeroDivisionError] * 2
