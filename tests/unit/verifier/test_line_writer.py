"""Lines of the log of seals beside seals: every answer gets there, through restarts; no stranger's line counts."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aetheris.proofs.audit import Audit
from aetheris.proofs.log_lines import MOST, answers_of, answers_payload, interim_of, read_line, receipt_hash, sign_line
from aetheris.proofs.trust import SEAL, TrustedKey, keyring
from aetheris.protocol.base.records import Draft, Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import JobCreated
from aetheris.protocol.messages.submission_numbers import SubmissionAnswered, SubmissionNumber
from aetheris.protocol.tables.signed_messages import SignedMessages
from aetheris.runtime.base.clock import SystemClock
from aetheris.testkit.memory import MemoryLog
from aetheris.verifier.core.line_index import LineIndex
from aetheris.verifier.core.open_jobs import OpenJobs, lines
from aetheris.verifier.core.partition import AuditedJob, OpenJob, Partition, raw
from aetheris.verifier.core.unlogged_answers import Answers
from aetheris.verifier.keys import SealKeys
from aetheris.verifier.line_writer import LoggedAnswers, LogLines
from tests.testkit.histories import created

KEYS = SealKeys(Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate())
STRANGER = Ed25519PrivateKey.generate()


class LineClock(SystemClock):
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def number(count: int) -> SubmissionNumber:
    return SubmissionNumber(gateway="a" * 32, partition=0, number=count + 1, at="2026-01-01T00:00:00Z", salt="b" * 32)


def named(count: int) -> str:
    return receipt_hash(f"job-{count}", "t", "r", number(count).model_dump())


def answered(count: int, offset: int) -> Record:
    said: Any = {"of_job": f"job-{count}", "tenant": "t", "request_hash": "r", "receipt": number(count)}
    body = SubmissionAnswered(**said, answer="same_as")
    return laid(draft(Topic.JOBS_EVENTS, body, key=body.job_id, id="i", source="s", time="t"), offset)


def born(count: int, offset: int) -> Record:
    body = created().model_copy(
        update={"job_id": f"job-{count}", "tenant": "t", "request_hash": "r", "receipt": number(count)}
    )
    return laid(draft(Topic.JOBS_EVENTS, body, key=body.job_id, id="i", source="s", time="t"), offset)


def laid(made: Draft, offset: int) -> Record:
    return Record(made.topic, 0, offset, 0, made.key, made.headers, made.value)


def job_of(record: Record) -> AuditedJob:
    said = JobCreated.read(record.value)
    number = said.receipt.model_dump() if said.receipt is not None else None
    receipt = receipt_hash(said.job_id, said.tenant, said.request_hash, number) if number is not None else None
    job = AuditedJob(said.job_id, record.offset, "t", receipt=receipt, audit=Audit())
    job.audit.add(raw(record))
    return job


class LineAuditor:
    """One life of a partition's writer, on a log of records that outlives it."""

    def __init__(self, log: MemoryLog, clock: LineClock) -> None:
        self.log, self.clock = log, clock
        runtime = SimpleNamespace(clock=clock, log=log, appender=log.appender())
        self.lines = LogLines(
            cast("Any", runtime),
            KEYS,
            SignedMessages(),
            0,
            logged=LoggedAnswers(cast("Any", log), KEYS),
            every_s=3600,
            source="s",
        )
        self.appender = runtime.appender
        self.jobs = Partition().jobs

    async def started(self, *records: Record) -> "LineAuditor":
        await self.appender.start()
        self.take(*records)
        await self.lines.learn()
        self.lines.start()
        return self

    def take(self, *records: Record) -> None:
        for record in records:
            is_birth = b"job_created" in (record.header("ce_type") or b"")
            job = job_of(record) if is_birth else None
            if job is not None:
                self.jobs[job.job_id] = job
            name = (record.header("ce_type") or b"").decode().split(".")[2]
            self.lines.take(record, name, job)
            self.lines.read(record.offset)

    async def write(self, after_s: float = 6.0) -> None:
        self.lines.next_due_s()
        self.clock.now_s += after_s
        await self.lines.write(self.jobs)


async def with_records(log: MemoryLog, count: int) -> None:
    """So many records of a partition of jobs.events: what lies beyond its end is of another log."""
    appender = log.appender()
    await appender.start()
    for _ in range(count):
        await appender.append([(Draft(Topic.JOBS_EVENTS, b"k", b"{}", (), 0),)])


def logged(log: MemoryLog) -> list[Mapping[str, Any]]:
    found = [read_line(record.value, keyring(KEYS.trusted, SEAL)) for record in log.records(Topic.JOBS_SEALS)]
    return [one for one in found if one is not None]


def log_of() -> MemoryLog:
    return MemoryLog(1)


async def test_answers_share_a_line_and_births_are_among_them() -> None:
    log = log_of()
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(born(1, 0), answered(2, 1))
    assert auditor.lines.low_water() == 0
    await auditor.write(1.0)
    assert logged(log) == []
    await auditor.write()
    (line,) = logged(log)
    assert [answers_of(line, named(count)) for count in (1, 2, 3)] == [["born"], ["same_as"], []]
    assert (line["up_to"], auditor.lines.low_water()) == (2, None)


async def test_a_full_line_waits_for_nothing() -> None:
    log = log_of()
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(*(answered(count, count) for count in range(MOST + 3)))
    await auditor.write(0.0)
    assert [(len(line["answers"]), line["up_to"]) for line in logged(log)] == [(MOST, MOST), (3, MOST + 3)]


async def test_a_restart_logs_what_the_last_life_did_not_and_nothing_twice() -> None:
    log, records = log_of(), [answered(count, count) for count in range(4)]
    await with_records(log, 10)
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(*records[:2])
    await auditor.write()
    auditor.take(*records[2:])  # and it dies
    after = await LineAuditor(log, LineClock()).started(*records)
    await after.write()
    assert [[one["receipt"] for one in line["answers"]] for line in logged(log)] == [
        [named(0), named(1)],
        [named(2), named(3)],
    ]


async def test_what_cannot_be_judged_is_named_and_logged_once_somebody_can() -> None:
    log, records = log_of(), [answered(0, 0), born(1, 1), answered(2, 2)]
    await with_records(log, 10)
    auditor = await LineAuditor(log, LineClock()).started(records[0])
    auditor.lines.take(records[1], "job_created", None, is_unjudged=True)
    auditor.take(records[2])
    await auditor.write()
    (line,) = logged(log)
    assert (line["up_to"], line["unjudged"], answers_of(line, named(1))) == (3, [1], [])
    after = await LineAuditor(log, LineClock()).started(*records)
    await after.write()
    assert [[one["receipt"] for one in line["answers"]] for line in logged(log)][1:] == [[named(1)]]
    assert "unjudged" not in logged(log)[1]
    last = await LineAuditor(log, LineClock()).started(*records)
    await last.write()
    assert len(logged(log)) == 2, "and then nothing twice"


async def test_an_answer_of_a_later_version_is_named_and_their_number_has_a_bound() -> None:
    log, told = log_of(), answered(0, 0)
    headers = tuple(
        (name, value.replace(b".v1", b".v2") if name == "ce_type" else value) for name, value in told.headers
    )
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(*(Record(told.topic, 0, at, 0, told.key, headers, told.value) for at in range(MOST + 5)))
    auditor.take(answered(1, MOST + 5))
    await auditor.write()
    (line,) = logged(log)
    assert (line["up_to"], line["unjudged"]) == (MOST + 6, list(range(MOST)))


async def test_a_stranger_s_line_keeps_no_answer_from_the_log() -> None:
    log = log_of()
    await with_records(log, 10)
    forged = answers_payload(partition=0, up_to=10, answers=[], at="2026-01-01T00:00:00Z", salt="s")
    appender = log.appender()
    await appender.start()
    for line in (sign_line(forged, STRANGER), {**KEYS.sign_line({**forged, "up_to": 0}), "up_to": 10}):
        await appender.append([(Draft(Topic.JOBS_SEALS, b"k", json.dumps(line).encode(), ()),)])
    auditor = await LineAuditor(log, LineClock()).started(answered(1, 1))
    await auditor.write()
    assert [answers_of(line, named(1)) for line in logged(log)] == [["same_as"]]


async def test_a_line_of_a_log_that_is_no_more_keeps_nothing_from_this_one() -> None:
    log = log_of()
    line = KEYS.sign_line(answers_payload(partition=0, up_to=99, answers=[], at="2026-01-01T00:00:00Z", salt="s"))
    appender = log.appender()
    await appender.start()
    value = json.dumps(line, separators=(",", ":")).encode()
    await appender.append([(Draft(Topic.JOBS_SEALS, b"k", value, ()),)])
    assert len(logged(log)) == 1
    auditor = await LineAuditor(log, LineClock()).started(answered(1, 1))
    await auditor.write()
    assert answers_of(logged(log)[1], named(1)) == ["same_as"]


async def test_what_the_brokers_refuse_is_offered_again() -> None:
    log = log_of()
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(answered(1, 0))
    log.faults.refuses = lambda _group: "no"
    await auditor.write()
    assert (logged(log), auditor.lines.low_water()) == ([], 0)
    log.faults.refuses = lambda _group: None
    await auditor.write(61.0)
    assert [answers_of(line, named(1)) for line in logged(log)] == [["same_as"]]


async def test_an_open_job_is_sealed_when_it_is_parked_and_from_time_to_time() -> None:
    log = log_of()
    auditor = await LineAuditor(log, LineClock()).started()
    auditor.take(born(1, 0), born(2, 1))
    auditor.lines.parked(auditor.jobs["job-2"])
    await auditor.write(0.0)
    (parked,) = logged(log)
    tree = auditor.jobs["job-2"].audit.chain.tree(1)
    assert (interim_of(parked, "job-2"), interim_of(parked, "job-1")) == ((1, tree), None)
    assert "job-2" not in json.dumps(dict(parked))
    await auditor.write(60.0)
    both = logged(log)[-1]
    assert interim_of(both, "job-1") is not None
    assert interim_of(both, "job-2") == (1, tree)
    before = len(logged(log))
    await auditor.write(60.0)
    assert len(logged(log)) == before
    await auditor.write(3600.0)
    assert len(logged(log)) == before + 1


def test_jobs_of_two_tenants_are_in_no_line_together() -> None:
    jobs = [OpenJob(f"job-{at}", tenant, 1, "") for at in range(MOST + 1) for tenant in ("t", "u")]
    assert sorted((tenant, len(own)) for tenant, own in lines(jobs)) == [("t", 1), ("t", MOST), ("u", 1), ("u", MOST)]


def test_a_job_that_can_t_be_judged_is_not_sealed_in_between() -> None:
    still = OpenJobs(10)
    still.start(0)
    jobs = Partition().jobs
    jobs["a"] = AuditedJob("a", 0, "t", needs_upgrade=True)
    assert still.due(jobs, 100) == []


def test_answers_from_checkpoints_come_in_any_order() -> None:
    answers = Answers()
    for offset in (7, 3, 5):
        answers.read(offset)
        answers.add(offset, named(offset), "born")
    answers.logged(4)
    assert answers.oldest == 5
    batch = answers.batch()
    assert batch is not None
    assert ([one.offset for one in batch.answers], batch.up_to) == ([5, 7], 8)


def test_lines_are_found_by_receipt_and_by_job_and_hostile_ones_find_nothing() -> None:
    index = LineIndex()

    def line(body: Mapping[str, Any]) -> bytes:
        return json.dumps(body, separators=(",", ":")).encode()

    said = [("0" * 15 + "1" + "f" * 48, "born"), (named(2), "born")]
    assert index.take(4, line(answers_payload(partition=0, up_to=9, answers=said, at="t", salt="s")))
    assert index.take(5, line({"kind": "answered_submissions", "answers": [{"receipt": "x" * 64}, 7, {"receipt": 3}]}))
    assert index.take(6, line({"kind": "interim_seals", "tenant": 3, "salt": [], "jobs": "no"}))
    assert not index.take(7, line({"job_id": "a"}))
    assert not index.take(8, b"\xff")
    assert index.of_receipt(named(2)) == [4]
    assert index.of_receipt(named(3)) == []
    assert index.of_job("t", "job") == []


def test_a_line_counts_as_its_key_signed_it() -> None:
    keys = [TrustedKey(STRANGER.public_key(), use=SEAL)]
    line = sign_line(answers_payload(partition=0, up_to=1, answers=[("a" * 64, "born")], at="t", salt="s"), STRANGER)

    def read(body: Mapping[str, Any]) -> object:
        return read_line(json.dumps(body, separators=(",", ":")).encode(), keyring(keys, SEAL))

    assert read(line) == line
    for name, other in {"up_to": 2, "kind": "interim_seals", "salt": "t", "at": "u", "partition": 1}.items():
        assert read({**line, name: other}) is None
    assert read({**line, "answers": [{"receipt": "a" * 64, "answer": "refused"}]}) is None
    assert read({name: line[name] for name in line if name != "signature"}) is None
