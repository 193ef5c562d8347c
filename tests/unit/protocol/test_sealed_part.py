"""What is shown of a sealed job: what was sealed, and late facts that are proved; the rest is void."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.base.record_tree import tree_over
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.writers import Party
from aetheris.protocol.fold.job_log import logged_events
from aetheris.protocol.fold.sealed_part import as_sealed
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.events import Event
from tests.testkit import histories as h
from tests.unit.protocol.test_sealed_records import HISTORY, sealed, stored
from tests.unit.runtime.test_record_signatures import Installation, SignedJob, key_event

CFO = h.about(
    ev.ApprovalDecided, "a", decision="approve", approver="the CFO", rule="r", tool_version="1", args_hash="h", token=1
)
HUMAN = h.finished("a", "n1", via="human")
DRIFT = h.about(ev.ConfirmationFailed, "a", ask="x", place=0, of=1, resource={}, mode="warn", reason="drift")


def behind(records: Sequence[Record], *events: Event) -> list[Record]:
    """With these behind, by whoever may append."""
    offsets = range(len(records), len(records) + len(events))
    return [*records, *(one_at(at, event) for at, event in zip(offsets, events, strict=True))]


def one_at(offset: int, event: Event) -> Record:
    (one,) = stored(event)
    headers = tuple((name, b"late%d" % offset if name == "ce_id" else value) for name, value in one.headers)
    return Record(one.topic, 0, offset, 0, one.key, headers, one.value)


def shown(records: Sequence[Record]) -> list[str]:
    """The types of what counts."""
    return [one.type for one in logged_events(as_sealed(records)) if not one.is_void]


@pytest.mark.parametrize("event", [CFO, HUMAN, DRIFT], ids=["a yes", "an end by nobody", "a drift by nobody"])
def test_what_nobody_proves_behind_a_seal_is_void(event: Event) -> None:
    records = sealed(stored(*HISTORY))
    assert shown(behind(records, event)) == shown(records)


def test_what_lies_between_the_end_and_the_seal_is_void_too() -> None:
    whole = behind(stored(*HISTORY), CFO)
    seal = sealed(stored(*HISTORY))[-1]
    records = [*whole, Record(seal.topic, 0, len(whole), 0, seal.key, seal.headers, seal.value)]
    assert "approval_decided" not in shown(records)
    assert shown(records)[-1] == "job_sealed"


def test_the_word_of_a_try_counts_and_each_record_keeps_its_number() -> None:
    records = behind(sealed(stored(*HISTORY)), CFO, h.finished("a", "n1"))
    assert shown(records)[-1] == "tool_invocation_finished"
    assert [one.sequence for one in logged_events(as_sealed(records))] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("change", [lambda one: one[:-1], lambda one: one[1:]], ids=["no seal", "another beginning"])
def test_without_a_seal_that_fits_all_counts(change: Callable[[list[Record]], list[Record]]) -> None:
    records = behind(change(sealed(stored(*HISTORY))), CFO)
    assert as_sealed(records) is records


def test_of_a_signed_job_what_its_services_sign_of_effects_counts(tmp_path: Path) -> None:
    job = SignedJob(Installation(tmp_path))
    job.write(Party.PLANNER, ev.JobCompleted(job_id=job.job_id))
    seal = h.SEAL.model_copy(
        update={"job_id": job.job_id, "event_count": len(job.records), "tree": tree_over(job.records).hex()}
    )
    job.write(Party.AUDITOR, seal)
    confirmed = key_event(ev.EffectConfirmed, ask="x", place=0, of=1, resource={}, mode="warn")
    job.write(Party.PROBER, confirmed)
    allowed = {"tool_version": "1", "args_hash": "h", "rule": "r", "policy_hash": "p"}
    job.write(Party.LEDGER, key_event(ev.PolicyAllowed, token=1, **allowed))
    assert shown(job.records)[-2:] == ["job_sealed", "effect_confirmed"]


def test_who_has_shown_a_certificate_behind_the_seal_is_known_by_it(tmp_path: Path) -> None:
    job = SignedJob(Installation(tmp_path))
    job.write(Party.PLANNER, ev.JobCompleted(job_id=job.job_id))
    said = {"job_id": job.job_id, "event_count": len(job.records), "tree": tree_over(job.records).hex()}
    job.write(Party.AUDITOR, h.SEAL.model_copy(update=said))
    asked: dict[str, Any] = {
        "ask": "x",
        "answer": "unknown",
        "invocation_id": "n1",
        "external_key": "k",
        "attempt_id": 0,
    }
    job.write(Party.PROBER, key_event(ev.InvocationProbed, **asked))
    drift = key_event(ev.ConfirmationFailed, ask="x", place=0, of=1, resource={}, mode="warn", reason="drift")
    job.write(Party.PROBER, drift)
    assert [b'"certificate"' in record.value for record in job.records[-2:]] == [True, False]
    assert shown(job.records)[-1] == "confirmation_failed"
