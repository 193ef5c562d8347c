"""The prober's edge: whatever is asked is answered once; what is not answered yet is asked again by the next one."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages import envelope
from aetheris.protocol.messages.commands import Verification
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.sdk import NotFound
from aetheris.verifier.prober.handlers import ProberDependencies, ProberPartition
from tests.unit.verifier.test_verifier_probing import prober, question


class Appended:
    """Stands for the log and the worker: keeps what is written, and what is put aside."""

    def __init__(self) -> None:
        self.written: list[Draft] = []
        self.aside: list[int] = []

    async def append(self, groups: Sequence[Group]) -> None:
        self.written.extend(draft for group in groups for draft in group)

    def quarantine(self, record: Record, _reason: str) -> None:
        self.aside.append(record.offset)


def asked(offset: int, value: bytes | None = None) -> Record:
    draft = envelope.draft(
        Topic.VERIFICATIONS, question(), key="j", id=f"e{offset}", source="test", time="2026-01-01T00:00:00+00:00"
    )
    headers = tuple((name, data) for name, data in draft.headers)
    return Record(str(Topic.VERIFICATIONS), 0, offset, 0, b"j", headers, draft.value if value is None else value)


def partition(asks: Any) -> tuple[ProberPartition, Appended]:
    log = Appended()
    runtime: Any = SimpleNamespace(telemetry=Telemetry("prober", 0.0), clock=SystemClock(), withheld=log)
    return ProberPartition(ProberDependencies(runtime, cast("Any", log), asks)), log


class Hanging:
    """Stands for a prober that nobody answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def ask(self, _question: Verification, _traceparent: bytes | None) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def offsets(found: Iterable[tuple[str, int]]) -> list[int]:
    return sorted(offset for _, offset in found)


async def settled(one: ProberPartition) -> None:
    async with asyncio.timeout(10):
        while list(one.live()):  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)


async def test_what_was_asked_while_nobody_lived_is_asked_once_all_is_read(tmp_path: Path) -> None:
    one, log = partition(prober(tmp_path, NotFound))
    one.fold([asked(3), asked(4)])
    await asyncio.sleep(0.05)
    assert (log.written, offsets(one.live())) == ([], [3, 4])
    await one.restored()
    await one.handle({str(Topic.VERIFICATIONS): [asked(5)]})
    await settled(one)
    assert [(draft.topic, dict(draft.headers)["ce_source"]) for draft in log.written] == [
        (Topic.JOBS_EVENTS, b"aetheris/prober")
    ] * 3


@pytest.mark.parametrize("folded", [True, False])
async def test_a_question_that_is_open_when_its_partition_goes_still_holds_its_offset(*, folded: bool) -> None:
    hanging = Hanging()
    one, log = partition(hanging)
    if folded:
        one.fold([asked(7)])
        await one.restored()
    else:
        await one.handle({str(Topic.VERIFICATIONS): [asked(7)]})
    async with asyncio.timeout(10):
        await hanging.asked.wait()
    await one.close()
    await asyncio.sleep(0)
    assert (offsets(one.live()), log.written) == ([7], [])


async def test_what_is_no_question_is_put_aside_and_holds_nothing(tmp_path: Path) -> None:
    one, log = partition(prober(tmp_path, NotFound))
    await one.handle({str(Topic.VERIFICATIONS): [asked(1, b"no json"), asked(2)]})
    await settled(one)
    assert (log.aside, len(log.written)) == ([1], 1)
