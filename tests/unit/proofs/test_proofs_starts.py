"""Which starts are void, and why: one history for each rule."""

from collections.abc import Callable
from typing import Any

import pytest

from aetheris.proofs import verify
from tests.testkit.proof_histories import Log, as_it_is, node, tool, validity
from tests.testkit.standalone import assert_agrees


def _reasons(log: Log) -> tuple[str, ...]:
    """Why the last started is void."""
    known = validity(log)
    return known.void_reasons(known.history.starts[-1])


def test_a_first_start_is_valid() -> None:
    log = Log()
    log.start("n1")
    assert _reasons(log) == ()


def _settled(log: Log) -> None:
    log.step("n1")
    log.start("n2")


def _running(log: Log) -> None:
    log.start("n1")
    log.start("n2")


def _parked(log: Log) -> None:
    log.start("n1")
    log.about("invocation_parked", "n1")
    log.start("n2")


def _old_token(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")
    log.start("n2", token=1)


def _future_token(log: Log) -> None:
    log.start("n1", token=2)


def _unknown_revision(log: Log) -> None:
    log.start("n1", revision=1)


def _unknown_node(log: Log) -> None:
    log.start("n1", "z")


def _other_args(log: Log) -> None:
    log.revise(1, node("a", args={"amount": 1}))
    log.start("n1", revision=0)


def _true_is_not_one(log: Log) -> None:
    log.revise(1, node("a", args={"amount": 1}))
    log.revise(2, node("a", args={"amount": True}))
    log.start("n1", revision=1)


def _other_version(log: Log) -> None:
    log.revise(1, node("a"), tools={"refund": tool(version="2")})
    log.start("n1", revision=0)


def _stopped(log: Log) -> None:
    log.add("job_stopping", by="me", reason="r", up_to_revision=0)
    log.start("n1")


def _stop_named(log: Log) -> None:
    """Names a revision that the stop does not cover."""
    log.revise(1, node("c"))
    log.add("job_stopping", by="me", reason="r", up_to_revision=0)
    log.start("n1", revision=1)


def _stop_replanned(log: Log) -> None:
    """By a planner that had not read the stop."""
    log.add("job_stopping", by="me", reason="r", up_to_revision=0)
    log.revise(1, node("a", args={"x": 1}))
    log.start("n1", revision=0)


def _stop_before_replanned(log: Log) -> None:
    log.revise(1, node("a", args={"x": 1}))
    log.add("job_stopping", by="me", reason="r", up_to_revision=0)
    log.start("n1", revision=1)


def _undo_stopped(log: Log) -> None:
    _compensation(log, stops=(0, 1))


def _ended(log: Log) -> None:
    log.add("job_failed", error="e")
    log.start("n1")


def _refused(log: Log) -> None:
    log.about("policy_allowed", tool_version="1")
    log.decide("reject")
    log.decide("approve")
    log.start("n1")


def _edited(log: Log) -> None:
    log.decide("edit")
    log.start("n1")


def _other_key_runs(log: Log) -> None:
    log.start("n1", key="k1")
    log.start("n2", key="k2")


def _other_key_failed(log: Log) -> None:
    log.start("n1", key="k1")
    log.permanent("n1", "executor", key="k1")
    log.start("n2", key="k2")


def _other_key_rejected_unsure(log: Log) -> None:
    log.start("n1", key="k1")
    log.reopen("n1", key="k1")
    log.about("invocation_rejected", key="k1", reason="budget")
    log.start("n2", key="k2")


def _attempt_ahead(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")
    log.start("n2", token=2, attempt_id=1)


def _attempt_behind(log: Log) -> None:
    log.start("n1")
    log.retryable("n1")
    log.start("n2", token=2, attempt_id=0)


def _attempt_while_another_lives(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")
    log.start("n2", token=2)
    log.retryable("n2")
    log.start("n3", token=3, attempt_id=1)


def _foreign_external_key(log: Log) -> None:
    log.start("n1", external_key="aetheris:job-2:a:0")


def _after_unsettled(log: Log) -> None:
    log.start("n1")
    log.start("n2", "b", after=[{"invocation_id": "n1", "result_hash": "x"}])


def _after_other_result(log: Log) -> None:
    log.step("n1")
    log.start("n2", "b", after=[{"invocation_id": "n1", "result_hash": "x"}])


def _after_other_nonce(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")
    log.start("n2", token=2)
    log.finish("n1")
    log.start("n3", "b", after=[{"invocation_id": "n2", "result_hash": log.hashes["a"]}])


VOID: list[tuple[str, Callable[[Log], None]]] = [
    ("settled", _settled),
    ("not_open", _running),
    ("not_open", _parked),
    ("token", _old_token),
    ("token", _future_token),
    ("plan", _unknown_revision),
    ("plan", _unknown_node),
    ("plan", _other_args),
    ("plan", _true_is_not_one),
    ("plan", _other_version),
    ("stopped", _stopped),
    ("stopped", _stop_named),
    ("stopped", _stop_replanned),
    ("stopped", _stop_before_replanned),
    ("stopped", _undo_stopped),
    ("ended", _ended),
    ("refused", _refused),
    ("refused", _edited),
    ("node_guard", _other_key_runs),
    ("node_guard", _other_key_failed),
    ("node_guard", _other_key_rejected_unsure),
    ("attempt", _attempt_ahead),
    ("attempt", _attempt_behind),
    ("attempt", _attempt_while_another_lives),
    ("external_key", _foreign_external_key),
    ("after", _after_unsettled),
    ("after", _after_other_result),
    ("after", _after_other_nonce),
]


@pytest.mark.parametrize(("rule", "write"), VOID, ids=[write.__name__ for _, write in VOID])
def test_void(rule: str, write: Callable[[Log], None]) -> None:
    log = Log(node("a"), node("b"))
    write(log)
    assert rule in _reasons(log)


def _same_entry(log: Log) -> None:
    log.revise(1, node("a"), node("c"))
    log.start("n1", revision=0)


def _compensation(log: Log, stops: tuple[int, ...] = (0,)) -> None:
    undo = {"tool": "refund", "args": {}}
    log.revise(1, node("c", compensate_with=undo))
    log.step("n0", "c", revision=1)
    log.add("job_stopping", by="me", reason="r", up_to_revision=stops[0] + 1)
    log.revise(2, node("c.undo", **undo_of("c")))
    for up_to in stops[1:]:
        log.add("job_stopping", by="me", reason="r", up_to_revision=up_to + 1)
    log.start("n1", "c.undo", revision=2)


def undo_of(name: str) -> dict[str, str]:
    return {"compensates": name}


def _sure_rejection(log: Log) -> None:
    log.about("invocation_rejected", key="k1", reason="edited")
    log.start("n2", key="k2")


def _proved_rejection(log: Log) -> None:
    log.start("n1", key="k1")
    log.retryable("n1", key="k1")
    log.about("invocation_rejected", key="k1", reason="budget")
    log.start("n2", key="k2")


def _proved_attempt(log: Log) -> None:
    log.start("n1")
    log.retryable("n1")
    log.start("n2", token=2, attempt_id=1)


def _stale_expiry(log: Log) -> None:
    log.decide("approve")
    log.about("invocation_rejected", reason="expired")
    log.start("n1")


def _human_retry(log: Log) -> None:
    log.start("n1")
    log.about("invocation_parked", "n1")
    log.reopen("n1", by="policy")
    log.reopen("n1", by="human")
    log.start("n2", token=2)


@pytest.mark.parametrize(
    "write",
    [
        _same_entry,
        _compensation,
        _sure_rejection,
        _proved_rejection,
        _proved_attempt,
        _stale_expiry,
        _human_retry,
    ],
)
def test_valid(write: Callable[[Log], None]) -> None:
    log = Log(node("a"), node("b"))
    write(log)
    assert _reasons(log) == ()


@pytest.mark.parametrize(
    ("write", "reasons"),
    [
        (as_it_is, ("not_approved",)),
        (lambda log: log.decide("approve", tool_version="2"), ("not_approved",)),
        (lambda log: log.decide("approve"), ()),
        (lambda log: log.about("policy_allowed", tool_version="1"), ()),
        (lambda log: log.about("policy_allowed", tool_version="2"), ("not_approved",)),
    ],
)
@pytest.mark.parametrize("declared", ["tool", "plan"])
def test_irreversible_needs_a_yes(write: Callable[[Log], object], reasons: tuple[str, ...], declared: str) -> None:
    log = Log(node("a", irreversible=declared == "plan"), tools={"refund": tool(irreversible=declared == "tool")})
    write(log)
    log.start("n1")
    assert _reasons(log) == reasons


def _allowed_and_asked(log: Log) -> None:
    log.about("policy_allowed", tool_version="1")
    log.ask()


def _asked_behind_its_start(log: Log) -> None:
    log.start("n0")
    log.ask()
    log.retryable("n0")


def _answered(decision: str, **fields: Any) -> Callable[[Log], None]:
    def write(log: Log) -> None:
        log.ask()
        log.decide(decision, **fields)

    return write


@pytest.mark.parametrize(
    ("write", "reasons"),
    [
        (Log.ask, ("unanswered",)),
        (_allowed_and_asked, ("unanswered",)),
        (_answered("approve", tool_version="2"), ("unanswered",)),
        (_answered("approve", args_hash="other"), ("unanswered",)),
        (_answered("approve"), ()),
        (_answered("reject"), ("refused", "unanswered")),
    ],
)
def test_a_question_needs_a_yes(write: Callable[[Log], object], reasons: tuple[str, ...]) -> None:
    """Also of what can be undone, and of what the policy allowed; to just this call."""
    log = Log(node("a"))
    write(log)
    log.start("n1")
    assert _reasons(log) == reasons
    assert_agrees(verify(log.records), log.records)


def test_what_has_started_is_not_asked_about() -> None:
    log = Log(node("a"))
    _asked_behind_its_start(log)
    log.start("n1", token=2, attempt_id=1)
    assert _reasons(log) == ()
    assert_agrees(verify(log.records), log.records)


@pytest.mark.parametrize(
    ("end", "occurrence", "reasons"),
    [
        (as_it_is, 1, ("content_guard",)),
        (as_it_is, 2, ()),
        (lambda log: log.finish("n1"), 1, ("content_guard",)),
        (lambda log: log.permanent("n1", "ledger"), 1, ("content_guard",)),
        (lambda log: log.permanent("n1", "executor"), 1, ()),
    ],
    ids=["running", "another occurrence", "done", "failed, not sure", "failed, sure"],
)
def test_the_same_irreversible_call(end: Callable[[Log], object], occurrence: int, reasons: tuple[str, ...]) -> None:
    log = Log(node("a"), node("b"), tools={"refund": tool(irreversible=True)})
    for name in ("a", "b"):
        log.about("policy_allowed", name=name, tool_version="1")
    log.start("n1", content_key="same")
    end(log)
    log.start("n2", "b", content_key="same", occurrence=occurrence)
    assert _reasons(log) == reasons
