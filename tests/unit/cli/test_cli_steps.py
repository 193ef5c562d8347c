"""The lines that `aetheris run` shows."""

from typing import Any

from aetheris.cli.steps import Steps
from aetheris.sdk.client import JobEvent


def lines(*events: tuple[str, dict[str, Any]]) -> list[str]:
    steps = Steps()
    found = [
        steps.line(
            JobEvent(seq=at, id=f"e{at}", type=kind, time="t", subject="a", offset=at, data={"node_id": "a", **data})
        )
        for at, (kind, data) in enumerate(events, start=1)
    ]
    return [" ".join(str(line).split()) for line in found if line is not None]


STARTED = ("tool_invocation_started", {"tool_name": "refund", "attempt_id": 0, "external_key": "k0"})


def test_a_step_that_is_lost_found_out_and_settled() -> None:
    assert lines(
        STARTED,
        ("invocation_in_doubt", {"error_class": "ReadTimeout"}),
        ("worker_ended", {}),
        ("invocation_probed", {"answer": "found"}),
        ("tool_invocation_finished", {"outcome": "success", "via": "probe", "external_id": "re_1"}),
        ("command_committed", {}),
        ("node_finished", {}),
    ) == [
        "a refund started attempt 0 k0",
        "a refund in doubt attempt 0 ReadTimeout",
        "a refund probed attempt 0 the external system says: found",
        "a refund done attempt 0 re_1 via probe",
    ]


def test_a_step_that_is_tried_again_shows_its_attempt() -> None:
    again = ("tool_invocation_started", {**STARTED[1], "attempt_id": 1, "external_key": "k1"})
    assert lines(
        STARTED,
        ("tool_invocation_finished", {"outcome": "retryable_failure", "via": "executor", "error": "NotExecuted: busy"}),
        ("retry_scheduled", {"due_at": "soon"}),
        again,
        ("tool_invocation_finished", {"outcome": "permanent_failure", "via": "executor", "error": "no such order"}),
    ) == [
        "a refund started attempt 0 k0",
        "a refund not executed attempt 0 NotExecuted: busy",
        "a refund waits attempt 0 next try at soon",
        "a refund started attempt 1 k1",
        "a refund failed attempt 1 no such order",
    ]


def test_what_never_started_is_told_with_its_reason() -> None:
    assert lines(("invocation_rejected", {"reason": "duplicate_of", "detail": "key k"})) == [
        "a rejected duplicate_of: key k"
    ]


def test_it_says_what_a_job_waits_for_and_who_ends_that() -> None:
    waits = {"job_id": "j1", "correlation_key": "go", "due_at": "soon"}
    assert lines(
        ("approval_requested", waits),
        ("job_waiting", {**waits, "wait_type": "approval"}),
        ("job_waiting", {**waits, "wait_type": "signal"}),
        ("job_waiting", {**waits, "wait_type": "timer"}),
        ("job_waiting", {**waits, "wait_type": "resolve", "node_id": None}),
    ) == [
        "a waits for approval: `aetheris approve j1 --as …`",
        "a waits for a signal: `aetheris signal j1 go`",
        "a waits until soon",
        "job waits for a word: failed and not sure: `aetheris cancel j1`, with or without --compensate",
    ]
