"""Whose word the gateway takes for it that a worker has ended: that of a gateway of its root, and a life's own."""

from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.gateway.workers import WorkerDirectory
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import WorkerEnd, WorkerEntry
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.log.table import Table
from aetheris.testkit.memory import MemoryLog
from tests.testkit.lives import ended_word, incarnation_of
from tests.unit.runtime.test_signed_messages import KeyFolder, _held, _signed_by, drafted

LIVES = WorkerEntry(worker_id="w", live=incarnation_of("a"))
END = WorkerEnd(worker_id="w", incarnation=incarnation_of("a"), by="ann", evidence="seen")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> KeyFolder:
    return KeyFolder(tmp_path_factory.mktemp("ours"))


async def directory(keys: KeyFolder, *lines: Draft) -> WorkerDirectory:
    """As a gateway that starts reads these."""
    log = MemoryLog(1)
    appender = log.appender()
    await appender.start()
    await appender.append([(one,) for one in lines])
    table = Table(log, Topic.WORKERS)
    unused = cast("Any", None)
    made = WorkerDirectory(
        table,
        operators=unused,
        reads=unused,
        appender=appender,
        deadlines=unused,
        clock=SystemClock(),
        answer_s=1.0,
        keys=keys.gateway,
    )
    await table.load()
    return made


def lives() -> Draft:
    return draft(Topic.WORKERS, LIVES, key="w", id="1", source="s", time="t")


async def test_a_persons_word_counts_with_the_signature_of_a_gateway_of_this_root(
    ours: KeyFolder, tmp_path: Path
) -> None:
    plain = drafted(END, Topic.WORKERS)
    others = KeyFolder(tmp_path)
    forged = [plain, others.gateway.message(plain)]
    forged += [_signed_by(Signer(*_held(ours, party)), plain) for party in (Party.PLANNER, Party.LEDGER)]
    for one in forged:
        (shown,) = (await directory(ours, lives(), one)).all()
        assert (shown["live"], shown["ended"]) == (LIVES.live, 0)
    (shown,) = (await directory(ours, lives(), *forged, ours.gateway.message(plain))).all()
    assert (shown["live"], shown["ended"]) == (None, 1)


async def test_a_lifes_own_word_needs_no_signature(ours: KeyFolder) -> None:
    said = WorkerEntry(worker_id="w", ended=(ended_word("a"),))
    (shown,) = (await directory(ours, lives(), draft(Topic.WORKERS, said, key="w", id="2", source="s", time="t"))).all()
    assert (shown["live"], shown["ended"]) == (None, 1)
