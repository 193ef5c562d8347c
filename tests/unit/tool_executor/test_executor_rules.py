"""An executor folds no job that was created under earlier rules behind its partition's barrier."""

from pathlib import Path

import pytest

from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import RULES_BARRIER_KEY, RulesOrder
from aetheris.protocol.messages.envelope import draft
from tests.testkit.executor_bench import HandlerBench
from tests.testkit.histories import created
from tests.testkit.rules_orders import both_known, read_at
from tests.unit.protocol.test_rules_orders import barrier


def birth(job_id: str, offset: int, rules: int) -> Record:
    said = created().model_copy(update={"job_id": job_id, "rules": rules})
    return read_at(draft(Topic.JOBS_EVENTS, said, key=job_id, id=job_id, source="s", time="t"), offset)


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("as_history", [True, False])
async def test_a_birth_behind_the_barrier_is_none_and_one_before_it_is(
    tmp_path: Path, *, as_history: bool, is_ordered: bool
) -> None:
    with both_known():
        bench = HandlerBench(tmp_path)
        handler, what = bench.handler, barrier(2)
        if is_ordered:
            order = bench.rules.read(what.order.encode())
            assert isinstance(order, RulesOrder)
            assert bench.rules.take(order)
        said = draft(Topic.JOBS_EVENTS, what, key=RULES_BARRIER_KEY, id="b", source="s", time="t")
        records = [birth("before", 0, 1), read_at(said, 1), birth("late", 2, 1), birth("after", 3, 2)]
        if as_history:
            handler.fold(records)
        else:
            await handler.handle({Topic.JOBS_EVENTS: records})
        behind = [("after", 3), (RULES_BARRIER_KEY, 1)] if is_ordered else [("late", 2), ("after", 3)]
        assert list(handler.live()) == [("before", 0), *behind], "what nobody has ordered, where nobody signs, is none"
