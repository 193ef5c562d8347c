"""A root that a service is not told of any more: what it ordered has ended, and who runs the service hears of it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.tables.freeze_orders import FreezeOrders
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.log.order_table import OrderTable
from aetheris.runtime.log.table import Table
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.runtime.worker import unsigned
from aetheris.runtime.worker.unsigned import HeardMessages
from aetheris.testkit.memory import MemoryAppender, MemoryLog
from tests.unit.runtime.test_signed_messages import ANSWER, ORDER, SCOPE, KeyFolder, drafted


class StartingService:
    """A service that starts, and reads freezes."""

    def __init__(self, log: MemoryLog, *roots: str) -> None:
        self.table = Table(log, Topic.FREEZES)
        self.heard = HeardMessages(SignedMessages(roots), Metrics("ledger"))
        self.heard.follow(self.table)
        self.orders = FreezeOrders()
        OrderTable(self.table, self.orders, self.heard.line_counts)


@pytest.fixture(scope="module")
def installations(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyFolder, KeyFolder]:
    return KeyFolder(tmp_path_factory.mktemp("now")), KeyFolder(tmp_path_factory.mktemp("before"))


def said_by(folder: KeyFolder) -> list[Draft]:
    order, answer = drafted(ORDER, Topic.FREEZES), drafted(ANSWER, Topic.FREEZES)
    end = drafted(ORDER.model_copy(update={"frozen": False}), Topic.FREEZES)
    return [folder.gateway.message(order), folder.keys(Party.LEDGER).message(answer), folder.gateway.message(end)]


async def written(log: MemoryLog, *said: Draft) -> MemoryAppender:
    appender = log.appender()
    await appender.start()
    await appender.append([(one,) for one in said])
    return appender


async def test_it_is_said_once_how_much_of_each_kind_is_passed_over_and_under_which_root(
    installations: tuple[KeyFolder, KeyFolder],
) -> None:
    now, before = installations
    log = MemoryLog(1)
    forged = drafted(ORDER, Topic.FREEZES)
    await written(log, *said_by(before), forged)
    reader = StartingService(log, now.id)
    with capture_logs() as lines:
        await reader.table.load()
    named = [(one["type"], one["root"], one["lines"]) for one in lines if "root" in one]
    assert named == [("freeze_order", before.id, 2), ("freeze_answer", before.id, 1)]
    assert [one["log_level"] for one in lines if "root" in one] == ["warning"] * 2
    assert sum("not signed by" in one["event"] for one in lines) == 1, "what nobody signed is told as ever"
    assert [(one["type"], one["root"], one["lines"]) for one in reader.heard.other_roots()] == named
    assert reader.orders.last(SCOPE.key) is None
    with capture_logs() as later:
        order = said_by(before)[0]
        reader.table._set(ORDER.key, order.value)
    assert (later, reader.heard.other_roots()[0]["lines"]) == ([], 3)


async def test_who_is_told_of_both_roots_passes_nothing_over(installations: tuple[KeyFolder, KeyFolder]) -> None:
    now, before = installations
    log = MemoryLog(1)
    await written(log, *said_by(before))
    reader = StartingService(log, now.id, before.id)
    await reader.table.load()
    assert (reader.heard.other_roots(), reader.orders.last(SCOPE.key) is None) == ([], False)


async def test_who_has_many_roots_fills_neither_memory_nor_readiness(
    installations: tuple[KeyFolder, KeyFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsigned, "MOST_ROOTS", 2)
    forgers = [KeyFolder(tmp_path / str(number)) for number in range(4)]
    log = MemoryLog(1)
    await written(log, *(said_by(one)[0] for one in forgers))
    reader = StartingService(log, installations[0].id)
    with capture_logs() as lines:
        await reader.table.load()
    assert [one["root"] for one in reader.heard.other_roots()] == [one.id for one in forgers[:2]]
    assert len(lines) == 4
