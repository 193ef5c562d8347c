"""Each rule of the ledger proof against a history that breaks it; the report must name the event."""

from collections.abc import Callable

import pytest

from tests.testkit.proof_histories import A, Log, as_it_is, clean, tool, validity
from tests.testkit.standalone import verified as verify
from tests.testkit.tries import end_word


def _broken(log: Log) -> set[tuple[str, str]]:
    report = verify(log.records)
    return {(broken.rule, broken.event_id) for broken in report.violations}


def test_a_clean_job_holds() -> None:
    report = verify(clean().records)
    assert report.violations == ()
    assert report.ok
    assert report.to_json()["tool_invocation_ledger_proof"] == {"ok": True, "pending_idempotency_keys": []}


def test_an_open_try_is_pending_but_breaks_nothing_while_the_job_runs() -> None:
    log = Log()
    log.start("n1")
    report = verify(log.records)
    assert report.ledger.to_json() == {"ok": False, "pending_idempotency_keys": [A.key]}
    assert report.violations == ()
    assert not report.ok


def test_an_open_try_in_an_ended_job() -> None:
    log = Log()
    started = log.start("n1")
    log.add("job_cancelled", by="me")
    assert _broken(log) == {("unclosed_start", started)}


def test_recovery_leaves_nothing_to_say() -> None:
    """Retried under a new attempt, reopened under the same one, caught up in the end."""
    log = Log(tools={"refund": tool("idempotent")})
    log.start("n1")
    log.retryable("n1")
    log.start("n2", token=2, attempt_id=1)
    log.reopen("n2")
    log.start("n3", token=3, attempt_id=1)
    log.about("invocation_parked", "n3")
    log.finish("n3", via="catch_up")
    log.finish("n3")
    log.done()
    log.complete()
    report = verify(log.records)
    assert report.violations == ()
    assert report.ok


def test_executor_and_catch_up_must_agree() -> None:
    log = Log()
    log.start("n1")
    log.finish("n1", via="catch_up", result={"id": 1})
    text = log.finish("n1", result={"id": 2})
    assert ("reports_disagree", text) in _broken(log)


def test_a_try_must_agree_with_itself() -> None:
    log = Log()
    log.start("n1")
    log.finish("n1")
    text = log.retryable("n1")
    assert ("reports_disagree", text) in _broken(log)


@pytest.mark.parametrize("via", ["probe", "human", "late"])
def test_other_truth_in_outcome_is_a_violation_in_bytes_a_note(via: str) -> None:
    log = Log()
    log.start("n1")
    log.finish("n1", via=via, result={"id": 1})
    noted = log.finish("n1", result={"id": 2})
    report = verify(log.records)
    assert report.ledger.violations == ()
    assert [(note.rule, note.event_id) for note in report.notes] == [("truth_bytes_differ", noted)]
    text = log.permanent("n1", "executor")
    assert ("truth_differs", text) in _broken(log)


def _two_successes(effect_class: str, second_attempt: int) -> tuple[Log, str]:
    log = Log(tools={"refund": tool(effect_class)})
    log.start("n1")
    if second_attempt:
        log.retryable("n1")
    else:
        log.reopen("n1")
    log.start("n2", token=2, attempt_id=second_attempt)
    log.finish("n2")
    return log, log.finish("n1", via="late")


@pytest.mark.parametrize(
    ("effect_class", "second_attempt", "allowed"),
    [
        ("opaque", 0, False),
        ("probeable", 0, False),
        ("idempotent", 0, True),
        ("idempotent", 1, False),
        ("pure", 0, True),
        ("pure", 1, True),
    ],
)
def test_one_success_a_key(effect_class: str, second_attempt: int, allowed: bool) -> None:
    log, second = _two_successes(effect_class, second_attempt)
    assert (("second_success", second) not in _broken(log)) is allowed


def test_a_success_needs_a_start() -> None:
    log = Log()
    text = log.finish("n1")
    assert ("success_without_valid_start", text) in _broken(log)


def test_a_success_of_a_void_start_names_the_reason() -> None:
    log = Log()
    log.start("n1")
    log.start("n2")
    text = log.finish("n2")
    found = [broken for broken in verify(log.records).violations if broken.event_id == text]
    assert [broken.rule for broken in found] == ["success_without_valid_start"]
    assert "not_open" in found[0].message


def _settled_by_ledger(log: Log) -> None:
    log.permanent("n1", "ledger")


def _settled_by_human(log: Log) -> None:
    log.about("invocation_parked", "n1")
    log.permanent("n1", "human", by="ann")


def _rejected(log: Log) -> None:
    log.about("invocation_parked", "n1")
    log.reopen("n1", by="human")
    log.about("invocation_rejected", reason="budget")


@pytest.mark.parametrize("settle", [_settled_by_ledger, _settled_by_human, _rejected])
@pytest.mark.parametrize("effect_class", ["opaque", "idempotent"])
def test_what_contradicts_a_settlement(settle: Callable[[Log], None], effect_class: str) -> None:
    log = Log(tools={"refund": tool(effect_class)})
    log.start("n1")
    settle(log)
    assert _broken(log) == set()
    text = log.finish("n1", via="late")
    assert ("contradicts_settlement", text) in _broken(log)


def test_only_the_try_calls_itself_retryable() -> None:
    """Whoever else does says nothing: the try is still open, and what he wrote is named."""
    log = Log()
    log.start("n1")
    text = log.retryable("n1", via="ledger", word=end_word("n1", "retryable_failure", "executor"))
    assert _broken(log) == set()
    assert [(note.rule, note.event_id) for note in verify(log.records).notes] == [("unproven_report", text)]
    assert verify(log.records).ledger.pending_idempotency_keys == (A.key,)


def test_a_nonce_is_fresh() -> None:
    log = Log()
    log.start("n1")
    log.reopen("n1")
    again = log.start("n1", token=2)
    assert ("nonce_reused", again) in _broken(log)


def test_a_key_stays_one_call() -> None:
    log = Log(tools={"refund": tool("idempotent")})
    log.start("n1")
    log.reopen("n1")
    again = log.start("n2", token=2, args_hash="other")
    assert _broken(log) == {("key_moved", again), ("args_differ", again)}


def test_what_starts_is_what_was_planned() -> None:
    log = Log()
    started = log.start("n1", tool_version="2")
    assert _broken(log) == {("other_tool", started)}


def test_a_result_has_its_hash() -> None:
    log = Log()
    log.start("n1")
    text = log.finish("n1", result={"id": 1}, output_hash="0" * 64)
    assert ("output_hash_mismatch", text) in _broken(log)


def _two_live(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")
    log.start("n2", token=2)


def _one_live(log: Log) -> None:
    log.start("n1")


def _one_parked(log: Log) -> None:
    log.start("n1")
    log.about("invocation_parked", "n1")


def _one_reopened(log: Log) -> None:
    log.start("n1")
    log.reopen("n1")


def _one_proved(log: Log) -> None:
    log.start("n1")
    log.retryable("n1")


def _second_proved(log: Log) -> None:
    _two_live(log)
    log.retryable("n2")


def _own(invocation_id: str, via: str = "executor") -> Callable[[Log], str]:
    return lambda log: log.permanent(invocation_id, via)


def _no(reason: str = "policy") -> Callable[[Log], str]:
    return lambda log: log.about("invocation_rejected", reason=reason)


@pytest.mark.parametrize(
    ("before", "settle", "outcome", "sure"),
    [
        (_one_live, _own("n1"), "failed", True),
        (_one_live, _own("n1", "late"), "failed", True),
        (_two_live, _own("n2"), "failed", False),
        (_one_live, _own("n1", "ledger"), "failed", False),
        (_one_proved, _own("n1", "ledger"), "failed", True),
        (_one_reopened, _own("n1", "ledger"), "failed", False),
        (_second_proved, _own("n2", "ledger"), "failed", False),
        (_one_parked, _own("n1", "human"), "failed", False),
        (as_it_is, _no(), "rejected", True),
        (_one_proved, _no(), "rejected", True),
        (_one_reopened, _no(), "rejected", False),
    ],
)
def test_sure_means_certainly_no_effect(
    before: Callable[[Log], None], settle: Callable[[Log], str], outcome: str, sure: bool
) -> None:
    log = Log()
    before(log)
    text = settle(log)
    settled = validity(log).final(A.key)
    assert settled is not None
    assert (settled.fact.event_id, settled.outcome, settled.sure) == (text, outcome, sure)


@pytest.mark.parametrize(
    ("before", "reported"),
    [
        (_one_live, _own("n1", "human")),
        (_one_parked, _own("n1", "ledger")),
        (_two_live, _own("n1")),
        (_two_live, _own("n1", "ledger")),
        (_one_proved, _own("n1")),
        (_one_live, _own("n1", "probe")),
        (_one_live, _no()),
        (as_it_is, _own("", "ledger")),
    ],
)
def test_what_does_not_settle(before: Callable[[Log], None], reported: Callable[[Log], str]) -> None:
    log = Log()
    before(log)
    reported(log)
    assert validity(log).final(A.key) is None
