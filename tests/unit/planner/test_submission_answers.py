"""Every number of a submission is answered: by the birth that has it, or by a word of the planner's."""

import pytest

from aetheris.planner.core.decisions import Append, RefusedSubmission, SubmissionConflict
from aetheris.planner.core.partition import Partition
from aetheris.protocol.base.records import Record
from aetheris.protocol.messages.commands import JobIndexEntry, Submit
from aetheris.protocol.messages.envelope import Envelope
from aetheris.protocol.messages.events import Event, JobCreated
from aetheris.protocol.messages.submission_numbers import ReceiptVoid, SubmissionNumber
from tests.testkit import histories as h


def number(count: int, gateway: str = "a" * 32) -> SubmissionNumber:
    return SubmissionNumber(gateway=gateway, partition=0, number=count, at="t", salt="b" * 32)


def submission(count: int, job_id: str = "job", **more: object) -> Submit:
    named = {"job_id": job_id, "by": "ann", "tenant": "t", "request_hash": "r", "plan": h.graph({"id": "a"})}
    return Submit.model_validate({**named, "receipt": number(count), **more})


def folded(partition: Partition, decided: object, offset: int) -> None:
    assert isinstance(decided, Append)
    for at, fact in enumerate(decided.facts):
        partition.evolve(enveloped(fact.event, offset + at))


def enveloped(event: Event, offset: int) -> Envelope[Event]:
    return Envelope("id", event, Record("aetheris.jobs.events.v1", 0, offset, 0, event.job_id.encode(), (), b""))


def said(partition: Partition) -> list[tuple[int, str]]:
    return [(one.receipt.number, one.answer) for one in partition.answers.take()]


@pytest.fixture
def partition() -> Partition:
    return Partition(lambda _job_id: None)


def test_a_birth_has_the_number_that_it_answers(partition: Partition) -> None:
    decided = partition.submit(submission(1), "c", 0)
    assert isinstance(decided, Append)
    created = decided.facts[0].event
    assert isinstance(created, JobCreated)
    assert created.receipt == number(1)
    folded(partition, decided, 0)
    assert said(partition) == []


def test_a_repeat_is_answered_same_as_when_the_birth_is_folded_and_not_before(partition: Partition) -> None:
    decided = partition.submit(submission(1), "c", 0)
    assert partition.submit(submission(2, repeats=True), "d", 1) is None
    assert partition.submit(submission(3), "c", 2) is None
    assert said(partition) == []
    folded(partition, decided, 0)
    assert said(partition) == [(2, "same_as"), (3, "same_as")]
    assert partition.submit(submission(4), "e", 3) is None
    assert said(partition) == [(4, "same_as")]


def test_what_a_restart_reads_again_is_answered_by_its_birth_alone(partition: Partition) -> None:
    decided, restarted = partition.submit(submission(1), "c", 0), Partition(lambda _job_id: None)
    folded(restarted, decided, 0)
    assert restarted.submit(submission(1), "c", 0) is None
    assert said(restarted) == []


def test_the_same_number_of_another_gateway_is_another(partition: Partition) -> None:
    folded(partition, partition.submit(submission(1), "c", 0), 0)
    assert partition.submit(submission(1, receipt=number(1, "c" * 32)), "d", 1) is None
    assert said(partition) == [(1, "same_as")]


def test_repeats_of_what_is_not_created_are_refused_with_it(partition: Partition) -> None:
    partition.submit(submission(1), "c", 0)
    partition.submit(submission(2, repeats=True), "d", 1)
    partition.not_created("job")
    assert said(partition) == [(2, "refused")]


def test_no_plan_another_request_and_a_repeat_of_nothing_are_refused(partition: Partition) -> None:
    assert isinstance(partition.submit(submission(1, plan={"nodes": [{}]}), "c", 0), RefusedSubmission)
    assert partition.submit(submission(2, repeats=True), "d", 1) is None
    assert said(partition) == [(1, "refused"), (2, "refused")]
    folded(partition, partition.submit(submission(3), "c", 2), 0)
    assert isinstance(partition.submit(submission(4, request_hash="s"), "d", 3), SubmissionConflict)
    assert said(partition) == [(4, "refused")]


def test_a_job_that_was_sealed_long_ago_is_the_same() -> None:
    entry = JobIndexEntry(
        job_id="job", birth=0, request_hash="r", status="completed", tenant="t", submitted_by="ann", created_at="t"
    )
    partition = Partition(lambda job_id: entry if job_id == "job" else None)
    assert partition.submit(submission(7, repeats=True), "c", 9) is None
    assert said(partition) == [(7, "same_as")]


def test_a_void_number_and_one_that_waits_are_told() -> None:
    partition = Partition(lambda _job_id: None)
    void = ReceiptVoid(job_id="job", by="ann", tenant="t", request_hash="r", receipt=number(5))
    partition.answers.say(void, "void")
    partition.answers.say(submission(6), "waits")
    assert said(partition) == [(5, "void"), (6, "waits")]


def test_who_has_no_number_is_answered_nothing(partition: Partition) -> None:
    folded(partition, partition.submit(submission(1, receipt=None), "c", 0), 0)
    partition.submit(submission(1, receipt=None), "c", 1)
    partition.submit(submission(1, receipt=None, request_hash="s"), "c", 1)
    assert said(partition) == []
