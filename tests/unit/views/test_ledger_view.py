"""A job's ledger as it is told from its events: every status, who made it so, nothing beside the fold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import logged_events
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, RejectReason, Via
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.contract import ContractStatus
from aetheris.views.call_ledger import ledger_of
from aetheris.views.contracts import Contracts
from tests.testkit import histories as h
from tests.testkit.job_histories import node_finished, records, refunded
from tests.testkit.tries import try_of

PLAN = h.graph({"id": "a"}, {"id": "b", "depends_on": ["a"]})
START = h.started("a", "n1")
ASKED = h.about(ev.ApprovalRequested, "a", args_hash="h", tool_version="1", rule="r", form={})
YES = h.about(ev.ApprovalDecided, "a", args_hash="h", tool_version="1", rule="r", decision="approve", approver="eve")
PARKED = h.about(ev.InvocationParked, "a", invocation_id="n1", reason="nobody knows")
DOUBT = h.about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="TimeoutError")


def reopened(by: str, invocation_id: str = "n1", **more: Any) -> ev.InvocationReopened:
    return h.about(ev.InvocationReopened, "a", invocation_id=invocation_id, next_token=2, by=by, **more)


def rejected(reason: RejectReason, **more: Any) -> ev.InvocationRejected:
    return h.about(ev.InvocationRejected, "a", reason=reason, **more)


def failed(via: Via, error: str = "no such account", **more: Any) -> ev.ToolInvocationFinished:
    event = h.finished("a", "n1", outcome=Outcome.PERMANENT, via=via)
    return event.model_copy(update={"error": error, **more})


def confirmed(place: int = 1, number: int = 1, ask: str = "q1") -> ev.EffectConfirmed:
    where: dict[str, Any] = {"ask": ask, "place": place, "of": number, "resource": {}, "mode": "reconcile"}
    return h.about(ev.EffectConfirmed, "a", **where)


def drifted(ask: str = "q2") -> ev.ConfirmationFailed:
    where: dict[str, Any] = {"ask": ask, "place": 1, "of": 1, "resource": {}, "mode": "reconcile", "reason": "drift"}
    return h.about(ev.ConfirmationFailed, "a", **where)


def calls(*events: Event) -> list[dict[str, Any]]:
    return ledger_of(logged_events(records(h.created(), h.planned(PLAN), *events)))["calls"]


def only(*events: Event) -> dict[str, Any]:
    (call,) = calls(*events)
    return call


DONE = (START, h.finished("a", "n1"))


@pytest.mark.parametrize(
    ("events", "status", "effect", "reason"),
    [
        ((h.about(ev.PolicyAllowed, "a", args_hash="h", tool_version="1", rule="r"),), "new", "none", None),
        ((ASKED,), "waiting", "none", None),
        ((ASKED, YES), "new", "none", None),
        ((START,), "started", "possible", None),
        ((START, DOUBT), "in_doubt", "possible", "TimeoutError"),
        ((START, DOUBT, PARKED), "parked", "possible", "nobody knows"),
        ((START, reopened("policy")), "reopened", "possible", None),
        (DONE, "success", "confirmed", None),
        ((*DONE, confirmed()), "confirmed", "confirmed", None),
        ((*DONE, confirmed(1, number=2)), "success", "confirmed", None),
        ((*DONE, confirmed(), drifted()), "success", "confirmed", None),
        ((*DONE, node_finished("a", 0, "compensated", None)), "undone", "confirmed", None),
        ((START, failed(Via.EXECUTOR)), "failure", "none", "no such account"),
        ((START, PARKED, failed(Via.HUMAN)), "failure", "possible", "no such account"),
        ((START, PARKED, failed(Via.HUMAN, "cancelled")), "cancelled", "possible", "cancelled"),
        ((rejected(RejectReason.POLICY, detail="r"),), "rejected", "none", "policy: r"),
        ((rejected(RejectReason.EDITED),), "rejected", "none", "edited"),
        ((rejected(RejectReason.EXPIRED),), "cancelled", "none", "expired"),
        ((rejected(RejectReason.CANCELLED),), "cancelled", "none", "cancelled"),
    ],
)
def test_each_status(events: tuple[Event, ...], status: str, effect: str, reason: str | None) -> None:
    call = only(*events)
    assert (call["status"], call["has_effect"], call["reason"]) == (status, effect, reason)
    assert call["execution_id"] == execution_id(h.JOB, "a", h.key_of("a"))
    assert call["committed"] is (status in ("success", "confirmed", "undone"))


def test_a_void_report_that_brings_a_true_ones_id_does_not_hide_it() -> None:
    unproved = h.finished("a", "n1").model_copy(update={"word": None})
    *before, forged, true = records(h.created(), h.planned(PLAN), START, unproved, h.finished("a", "n1"))
    (call,) = ledger_of(logged_events([*before, forged.replaced(headers=true.headers), true]))["calls"]
    assert (call["status"], call["seq"], call["offset"]) == ("success", 5, true.offset)


def test_a_start_that_never_counted_is_void_until_one_does() -> None:
    ended = ev.WorkerEnded(job_id=h.JOB, worker_id="w", incarnation="i1", how="reaped")
    call = only(ended, START)
    assert (call["status"], call["void"], call["attempts"], call["invocation_id"]) == ("void", 1, 0, None)
    assert (call["tool_name"], call["has_effect"]) == ("act", "none")
    call = only(ended, START, h.started("a", "n2", incarnation="i2"), h.started("a", "n3", incarnation="i2"))
    assert (call["status"], call["void"], call["invocation_id"]) == ("started", 2, try_of("n2"))


def test_a_repeated_record_is_told_once() -> None:
    reported = records(h.created(), h.planned(PLAN), START)
    again = Record(reported[-1].topic, 0, 99, 0, reported[-1].key, reported[-1].headers, reported[-1].value)
    assert ledger_of(logged_events([*reported, again])) == ledger_of(logged_events(reported))


@pytest.mark.parametrize(
    ("events", "who"),
    [
        ((START,), ("test", None, None)),
        (DONE, ("test", None, "executor")),
        ((ASKED, YES), ("human", "eve", None)),
        ((START, PARKED, failed(Via.HUMAN, by="eve")), ("human", "eve", "human")),
        ((START, PARKED, reopened("human", evidence=({"by": "eve", "evidence": "looked"},))), ("human", "eve", None)),
        ((START, PARKED, reopened("human", evidence=("looked",))), ("human", None, None)),
        ((rejected(RejectReason.APPROVAL, by="eve"),), ("human", "eve", None)),
        ((rejected(RejectReason.POLICY),), ("test", None, None)),
    ],
)
def test_who_decided(events: tuple[Event, ...], who: tuple[str | None, str | None, str | None]) -> None:
    call = only(*events)
    assert (call["decided_by"], call["by"], call["via"]) == who


def test_the_event_that_decided_is_named_not_the_last_one() -> None:
    late = h.about(ev.InvocationProbed, "a", invocation_id="n1", external_key="x", ask="q", answer="unknown")
    call = only(START, DOUBT, late, late)
    assert (call["event_id"], call["seq"], call["offset"]) == ("e3", 4, 9)
    assert call["decided_at"] == "2026-01-01T00:00:03+00:00"


def test_what_was_asked_about_and_never_started_is_cancelled_with_its_job() -> None:
    call = only(ASKED, YES, ev.JobCancelled(job_id=h.JOB, by="ann"))
    assert (call["status"], call["has_effect"], call["decided_by"], call["by"]) == ("cancelled", "none", "human", "ann")
    assert only(START, ev.JobCancelled(job_id=h.JOB, by="ann"))["status"] == "started"


def test_what_the_outside_said_last_stands() -> None:
    assert (only(*DONE, confirmed())["confirmation"], only(*DONE, confirmed())["confirmed_at"]) == (
        "confirmed",
        "2026-01-01T00:00:04+00:00",
    )
    gone = only(*DONE, confirmed(), drifted())
    assert (gone["confirmation"], gone["confirmed_at"], gone["event_id"]) == ("drift", None, "e5")


def test_calls_come_as_the_log_first_told_of_them_and_an_edit_is_another_call() -> None:
    edited = h.about(
        ev.ApprovalDecided, "a", args_hash="h", tool_version="1", rule="r", decision="edit", approver="eve"
    )
    edited = edited.model_copy(update={"data": {"x": 2}})
    found = calls(ASKED, edited, rejected(RejectReason.EDITED), h.started("a", "n1", args={"x": 2}))
    assert [(call["status"], call["idempotency_key"]) for call in found] == [
        ("rejected", h.key_of("a")),
        ("started", h.key_of("a", {"x": 2})),
    ]


def test_the_token_is_that_of_the_next_try_or_the_last() -> None:
    late = [START, reopened("policy"), h.started("a", "n2", token=2)]
    assert [only(*late[:count])["token"] for count in (1, 2, 3)] == [1, 2, 2]
    assert (only(*late)["attempts"], only(*late)["invocation_id"]) == (2, try_of("n2"))


def test_a_second_effect_is_an_alarm_of_its_call() -> None:
    second = [START, reopened("policy"), h.started("a", "n2", token=2), h.finished("a", "n2"), h.finished("a", "n1")]
    assert only(*second)["alarms"] == [try_of("n1")]


def test_a_real_course_has_a_line_for_each_call() -> None:
    found = ledger_of(logged_events(records(*refunded())))
    assert [(call["step_id"], call["status"], call["external_id"]) for call in found["calls"]] == [
        ("lookup", "success", None),
        ("pay", "success", "re_123"),
    ]
    assert ledger_of(logged_events([])) == {}


SAME = {
    "new": ContractStatus.PENDING,
    "waiting": ContractStatus.WAITING,
    "started": ContractStatus.RUNNING,
    "in_doubt": ContractStatus.RUNNING,
    "reopened": ContractStatus.RUNNING,
    "parked": ContractStatus.WAITING,
    "success": ContractStatus.COMPLETED,
    "failure": ContractStatus.FAILED,
    "rejected": ContractStatus.REJECTED,
    "cancelled": ContractStatus.CANCELLED,
    "void": ContractStatus.PENDING,
}
NONCES = st.sampled_from(["n1", "n2"])
ANY = st.one_of(
    st.builds(h.started, st.just("a"), NONCES, token=st.integers(1, 3), attempt=st.integers(0, 1)),
    st.builds(h.finished, st.just("a"), NONCES, outcome=st.sampled_from(Outcome), via=st.sampled_from(Via)),
    NONCES.map(lambda invocation_id: h.about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="r")),
    st.builds(reopened, st.sampled_from(["human", "policy"]), NONCES),
    st.builds(rejected, st.sampled_from(RejectReason)),
    st.sampled_from([PARKED, DOUBT, failed(Via.HUMAN, "cancelled"), failed(Via.LEDGER)]),
)


@given(st.lists(ANY, max_size=12))
def test_the_ledger_and_the_contracts_never_differ(events: list[Event]) -> None:
    contracts = Contracts()
    for one in logged_events(records(h.created(), h.planned(PLAN), *events)):
        contracts.take(one)
    assert contracts.job is not None
    for call in calls(*events):
        assert SAME[call["status"]] is contracts.status(call["idempotency_key"])
        assert call["event_id"] is not None
