"""Each condition of what a key, an entry and a job are said to be, alone (docs/mutants.md)."""

from datetime import UTC, datetime
from typing import Any

from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.fold.job_log import Sequence, fold_event, fold_into, moment_of
from aetheris.protocol.fold.state import Settled, create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.envelope import NeedsUpgrade
from aetheris.protocol.messages.event_values import RejectReason
from tests.testkit.histories import JOB, about, created, finished, fold, graph, key_of, planned, started

PLAN = planned(graph({"id": "a"}, {"id": "b"}))
IRREVERSIBLE = planned(graph({"id": "a"}, {"id": "b"}, act={"irreversible": True}))
WAIT = {"id": "w", "kind": "wait", "tool": None, "wait": {"key": "go"}}
OF_WAIT = {"job_id": JOB, "node_id": "w", "wait_type": "signal", "idempotency_key": "k-w", "correlation_key": "go"}
ALLOWED = about(ev.PolicyAllowed, "a", args_hash=args_hash(None), tool_version="1", rule="r")
PARKED = about(ev.InvocationParked, "a", invocation_id="n1", reason="r")


def asked(token: int | None = None) -> Any:
    fields: dict[str, Any] = {
        "args_hash": args_hash(None),
        "tool_version": "1",
        "rule": "r",
        "form": {},
        "token": token,
    }
    return about(ev.ApprovalRequested, "a", **fields)


def reopened(by: str) -> Any:
    return about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by=by)


def test_a_wait_that_has_ended_waits_no_more() -> None:
    begun = (planned(graph(WAIT)), ev.JobWaiting.model_validate(OF_WAIT))
    assert fold(*begun).keys["k-w"].is_waiting
    assert not fold(*begun, ev.WaitCompleted.model_validate(OF_WAIT)).keys["k-w"].is_waiting


def test_what_needed_no_yes_asks_nobody_when_policy_reopens_it() -> None:
    job = fold(PLAN, started("a", "n1"), asked(), reopened("policy"))
    assert not job.keys[key_of("a")].is_asking


def test_a_late_success_ends_what_a_retry_by_hand_asks() -> None:
    asking = (IRREVERSIBLE, ALLOWED, started("a", "n1"), PARKED, reopened("human"), asked(2))
    assert fold(*asking).keys[key_of("a")].is_asking
    assert not fold(*asking, finished("a", "n1", via="late")).keys[key_of("a")].is_asking


def test_a_wait_has_a_version_and_no_timeout() -> None:
    entry = fold(planned(graph(WAIT))).entry("w")
    assert entry is not None
    assert (entry.pin, entry.tool_version, entry.timeout_s) == (None, "1", None)


def test_a_call_has_the_version_that_its_tool_is_pinned_to() -> None:
    entry = fold(planned(graph({"id": "a"}, act={"version": "7"}))).entry("a")
    assert entry is not None
    assert entry.tool_version == "7"


def test_a_rejected_call_ends_no_node_whose_other_call_is_in_flight() -> None:
    other = about(ev.InvocationRejected, "a", args={"x": 1}, reason=RejectReason.POLICY)
    job = fold(PLAN, started("a", "n1"), other)
    assert job.keys[key_of("a", {"x": 1})].outcome is Settled.REJECTED
    assert job.settled_key("a") is None


def test_the_plan_itself_is_not_kept_with_the_birth() -> None:
    planless = created()
    assert create_job(planless, 0).created is planless
    assert create_job(planless.model_copy(update={"plan": {"nodes": []}}), 0).created == planless


def test_what_only_an_upgrade_can_read_stops_a_job_and_what_nobody_knows_does_not() -> None:
    newer = NeedsUpgrade(JOB, Record(Topic.JOBS_EVENTS, 0, 1, 0, JOB.encode(), (), b"{}"))
    assert fold_event(None, newer, 1) == (None, False)
    assert fold_event(fold(PLAN), None, 9) == (fold(PLAN), False)
    assert fold_event(None, None, 1) == (None, False)
    assert fold_event(None, started("a", "n1"), 1) == (None, False)
    state, counts = fold_event(fold(PLAN), newer, 1)
    assert (state is not None and state.needs_upgrade, counts) == (True, True)


def test_a_job_that_was_read_with_a_record_of_a_later_version_waits() -> None:
    later = (("ce_type", b"io.aetheris.job_completed.v2"), ("ce_id", b"1"))
    record = Record(Topic.JOBS_EVENTS, 0, 1, 0, JOB.encode(), later, b"{}")
    state = fold_into(fold(PLAN), record, Sequence())
    assert state is not None
    assert state.needs_upgrade


def test_a_time_without_an_offset_is_utc() -> None:
    assert moment_of("2030-01-01T00:00:00") == datetime(2030, 1, 1, tzinfo=UTC)
    assert moment_of("2030-01-01T02:00:00+02:00") == datetime(2030, 1, 1, tzinfo=UTC)
    assert str(moment_of("2030-01-01T02:00:00+02:00")) == "2030-01-01 02:00:00+02:00"
    assert moment_of("soon") is None
