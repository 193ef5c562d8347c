"""Receipts: one for each submission that lies in the log, numbered without a gap, signed with it, whoever gives up."""

import asyncio
from pathlib import Path

import pytest

from aetheris.gateway.command_writer import CommandWriter
from aetheris.gateway.core.problems import TooLarge
from aetheris.gateway.core.submissions import repeated
from aetheris.gateway.submission_writer import SubmissionWriter
from aetheris.protocol.base.signing import read_signed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import Envelope, decode_message
from aetheris.protocol.messages.submission_numbers import Receipt, ReceiptVoid
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys
from aetheris.runtime.log.partitioning import partition_of
from aetheris.runtime.telemetry.tracer import Telemetry
from aetheris.testkit.memory import MemoryLog
from tests.unit.gateway.test_message_signer import keys_of

PARTITIONS = 4


def submission(job_id: str, tenant: str = "t") -> Submit:
    return Submit(job_id=job_id, by="ann", tenant=tenant, request_hash="r" * 64, plan={"nodes": []})


def place_of(job_id: str) -> int:
    return partition_of(job_id, PARTITIONS)


async def writer_on(log: MemoryLog, keys: RecordKeys) -> SubmissionWriter:
    appender = log.appender()
    await appender.start()
    commands = CommandWriter(appender, SystemClock(), Telemetry("gateway", 0), answer_s=1, request_s=1, keys=keys)
    return SubmissionWriter(commands, place_of, SystemClock())


def written(log: MemoryLog) -> list[Submit | ReceiptVoid]:
    found: list[Submit | ReceiptVoid] = []
    for record in log.records(Topic.JOBS_COMMANDS):
        envelope = decode_message(record)
        assert isinstance(envelope, Envelope)
        assert isinstance(envelope.body, Submit | ReceiptVoid)
        found.append(envelope.body)
    return found


def read(receipt: str | None) -> Receipt:
    assert receipt is not None
    return Receipt.model_validate_json(receipt)


async def test_a_receipt_says_what_the_log_says_and_is_signed_for_it(tmp_path: Path) -> None:
    log, keys = MemoryLog(PARTITIONS), keys_of(tmp_path)
    writer = await writer_on(log, keys)
    text = await writer.send(submission("job-1"), None)
    receipt, (command,) = read(text), written(log)
    assert isinstance(command, Submit)
    assert receipt.receipt == command.receipt
    assert (receipt.job_id, receipt.tenant, receipt.by, receipt.request_hash) == ("job-1", "t", "ann", "r" * 64)
    assert text is not None
    counts = keys.messages.counts
    assert counts(Topic.JOBS_COMMANDS, "receipt", b"job-1", text.encode())
    assert not counts(Topic.JOBS_COMMANDS, "receipt", b"job-2", text.encode())
    assert not counts(Topic.JOBS_COMMANDS, "submit", b"job-1", text.encode())
    assert not counts(Topic.JOBS_COMMANDS, "receipt", b"job-1", text.replace('"number":1', '"number":2').encode())


async def test_receipt_and_submission_share_their_signature(tmp_path: Path) -> None:
    log, keys = MemoryLog(PARTITIONS), keys_of(tmp_path)
    writer = await writer_on(log, keys)
    texts = await asyncio.gather(*(writer.send(submission(f"job-{number}"), None) for number in range(4)))
    values = [text.encode() for text in texts if text is not None]
    values += [record.value for record in log.records(Topic.JOBS_COMMANDS)]
    signatures = [found[1].value for value in values if (found := read_signed(value)) is not None]
    assert len(signatures) == 8
    assert len(set(signatures)) == 1


async def test_numbers_have_no_gap_in_the_order_in_which_they_lie_in_a_partition(tmp_path: Path) -> None:
    log, keys = MemoryLog(PARTITIONS), keys_of(tmp_path)
    writer, other = await writer_on(log, keys), await writer_on(log, keys)
    jobs = [submission(f"job-{number}", tenant) for number in range(20) for tenant in ("t", "u")]
    await asyncio.gather(*(writer.send(job, None) for job in jobs), other.send(submission("job-99"), None))
    streams: dict[tuple[str, str, int], list[int]] = {}
    for command in written(log):
        assert command.receipt is not None
        number = command.receipt
        assert number.partition == place_of(command.job_id)
        streams.setdefault((number.gateway, command.tenant, number.partition), []).append(number.number)
    assert sum(map(len, streams.values())) == len(jobs) + 1
    assert len(streams) == 2 * PARTITIONS + 1
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in streams.values())


async def test_what_was_given_a_number_is_written_though_its_client_has_gone(tmp_path: Path) -> None:
    log = MemoryLog(PARTITIONS)
    writer = await writer_on(log, keys_of(tmp_path))
    log.faults.append_delay_s = 0.05
    asking = asyncio.create_task(writer.send(submission("job-1"), None))
    await asyncio.sleep(0)  # it has its number, and is not signed yet
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    later = read(await writer.send(submission("job-1"), None))
    assert later.receipt.number == 2
    assert [one.receipt and one.receipt.number for one in written(log)] == [1, 2]


async def test_a_number_whose_submission_is_refused_is_made_void(tmp_path: Path) -> None:
    log, keys = MemoryLog(PARTITIONS), keys_of(tmp_path)
    writer = await writer_on(log, keys)
    log.faults.refuses = lambda group: "too large" if b'"plan"' in group[0].value else None
    with pytest.raises(TooLarge):
        await writer.send(submission("job-1"), None)
    log.faults.refuses = lambda _group: None
    assert read(await writer.send(submission("job-1"), None)).receipt.number == 2
    void, taken = written(log)
    assert isinstance(void, ReceiptVoid)
    assert (void.receipt.number, void.job_id, taken.receipt and taken.receipt.number) == (1, "job-1", 2)


async def test_a_repeat_has_a_number_of_its_own_and_asks_for_nothing(tmp_path: Path) -> None:
    log = MemoryLog(PARTITIONS)
    writer = await writer_on(log, keys_of(tmp_path))
    first = read(await writer.send(submission("job-1"), None))
    again = read(await writer.send_again(repeated(submission("job-1")), None))
    assert (first.receipt.number, again.receipt.number, again.job_id) == (1, 2, "job-1")
    _, repeat = written(log)
    assert isinstance(repeat, Submit)
    assert (repeat.repeats, repeat.plan, repeat.request_hash) == (True, None, "r" * 64)


async def test_who_signs_nothing_gives_no_receipt_and_lays_no_repeat_into_the_log() -> None:
    log = MemoryLog(PARTITIONS)
    writer = await writer_on(log, UNSIGNED)
    assert await writer.send(submission("job-1"), None) is None
    assert await writer.send_again(repeated(submission("job-1")), None) is None
    assert [one.receipt for one in written(log)] == [None]
