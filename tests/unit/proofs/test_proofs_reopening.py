"""What a call was reopened on, judged from the log: by the proofs and by verify.py alike."""

from typing import Any

import pytest

from tests.testkit.proof_histories import JOB, Log, tool
from tests.testkit.standalone import verified as verify

KEY = f"aetheris:{JOB}:a:0"
BOUND_S = 4.0


def probed(log: Log, invocation_id: str = "n1", answer: str = "not_found", key: str = KEY) -> None:
    log.about("invocation_probed", invocation_id, answer=answer, external_key=key, ask="q")


def ended(log: Log, worker_id: str = "w", incarnation: str = "i") -> None:
    log.add("worker_ended", worker_id=worker_id, incarnation=incarnation, how="lock")


def reopened(log: Log, asked_after_s: Any = BOUND_S) -> str:
    evidence = {"not_found": KEY} if asked_after_s is None else {"not_found": KEY, "asked_after_s": asked_after_s}
    return log.reopen("n1", by="probe", evidence=[evidence])


def history(effect_class: str = "probeable", **pinned: Any) -> Log:
    log = Log(tools={"refund": tool(effect_class, **{"settles_within_s": BOUND_S, **pinned})})
    log.start("n1")
    return log


def unproven(log: Log) -> list[str]:
    return [one.event_id for one in verify(log.records).violations if one.rule == "unproven_reopening"]


def test_not_found_after_the_end_and_the_bound_is_a_proof() -> None:
    log = history()
    probed(log)  # too early, and so no proof; the next one is
    ended(log)
    probed(log)
    reopened(log)
    assert unproven(log) == []


@pytest.mark.parametrize("asked_after_s", [BOUND_S - 0.01, 0.0, None, "4", True])
def test_one_that_was_asked_for_too_early_is_none(asked_after_s: Any) -> None:
    log = history()
    ended(log)
    probed(log)
    assert [reopened(log, asked_after_s)] == unproven(log)


def test_a_pin_that_states_no_bound_has_its_timeout() -> None:
    for timeout_s, needed_s in ((20, 20.0), (None, 30.0)):
        short, long = (history(settles_within_s=None, timeout_s=timeout_s) for _ in range(2))
        for log in (short, long):
            ended(log)
            probed(log)
        assert [reopened(short, needed_s - 1)] == unproven(short)
        reopened(long, needed_s)
        assert unproven(long) == []


@pytest.mark.parametrize(
    "reported",
    [
        probed,
        ended,
        lambda log: (probed(log), ended(log)),
        lambda log: (ended(log, "other"), probed(log)),
        lambda log: (ended(log, incarnation="other"), probed(log)),
        lambda log: (ended(log), probed(log, answer="unknown")),
        lambda log: (ended(log), probed(log, invocation_id="n9")),
        lambda log: (ended(log), probed(log, key=f"aetheris:{JOB}:a:1")),
    ],
)
def test_without_an_end_and_an_answer_after_it_nothing_is_proven(reported: Any) -> None:
    log = history()
    reported(log)
    assert [reopened(log)] == unproven(log)


def test_the_word_of_who_submitted_the_job_is_no_proof_and_others_are_named() -> None:
    for by, founded in (("me", False), (None, False), ("ann", True)):
        log = history()
        text = log.add("worker_ended", worker_id="w", incarnation="i", how="human", by=by, evidence="seen")
        log.add("worker_ended", worker_id="w", incarnation="i", how="human", by=by, evidence="again")
        probed(log)
        again = reopened(log)
        assert unproven(log) == ([] if founded else [again])
        (named,) = verify(log.records).to_json()["ended_by_hand"]
        assert (named["by"], named["evidence"], named["event_id"]) == (by, "seen", text)


def test_a_proof_that_follows_such_a_word_counts() -> None:
    log = history()
    log.add("worker_ended", worker_id="w", incarnation="i", how="human", by="me", evidence="seen")
    ended(log)
    probed(log)
    reopened(log)
    assert unproven(log) == []


def returned(log: Log, invocation_id: str = "n1", reported: Any = True) -> None:
    log.about("invocation_in_doubt", invocation_id, error_class="ConnectionResetError", returned=reported)


def test_a_call_that_says_it_has_returned_can_act_no_more_either() -> None:
    log = history()
    returned(log)
    probed(log)
    reopened(log)
    assert unproven(log) == []


@pytest.mark.parametrize(
    "reported",
    [
        lambda log: (probed(log), returned(log)),
        lambda log: (returned(log, "n9"), probed(log)),
        lambda log: (returned(log, reported=False), probed(log)),
        lambda log: (returned(log, reported="yes"), probed(log)),
    ],
)
def test_but_only_that_call_and_only_from_then_on(reported: Any) -> None:
    log = history()
    reported(log)
    assert [reopened(log)] == unproven(log)


def test_who_says_so_before_it_has_started_has_not() -> None:
    log = Log(tools={"refund": tool("probeable", settles_within_s=BOUND_S)})
    returned(log)
    log.start("n1")
    probed(log)
    assert [reopened(log)] == unproven(log)


def test_an_answer_that_follows_the_reopening_comes_too_late() -> None:
    log = history()
    ended(log)
    text = reopened(log)
    probed(log)
    assert unproven(log) == [text]


@pytest.mark.parametrize("end", [ended, returned])
def test_what_is_parked_is_reopened_by_the_same_proof(end: Any) -> None:
    """And by nothing less: without the end it stays parked, and the next start has no token."""
    log, early = history(), history()
    for one, ends in ((log, end), (early, lambda _log: None)):
        one.about("invocation_parked", "n1", reason="r")
        ends(one)
        probed(one)
        reopened(one)
        one.start("n2", token=2, incarnation="i2")
        one.finish("n2")
    assert (unproven(log), verify(log.records).ok) == ([], True)
    assert {one.rule for one in verify(early.records).violations} == {"success_without_valid_start"}


@pytest.mark.parametrize("end", [ended, returned])
def test_the_ledger_may_end_what_was_parked_and_reopened_by_proof(end: Any) -> None:
    """As where the job is stopping by then; nothing else has it out of its being parked."""
    log, early = history(), history()
    for one, ends in ((log, end), (early, lambda _log: None)):
        one.about("invocation_parked", "n1", reason="r")
        ends(one)
        probed(one)
        reopened(one)
        one.permanent("n1", "ledger", error="the job is stopping")
        one.done(result_type="permanent_failure")
    assert (unproven(log), verify(log.records).ok) == ([], True)
    assert not verify(early.records).ok


@pytest.mark.parametrize("effect_class", ["pure", "idempotent", "opaque", "probeable"])
def test_only_what_may_be_repeated_is_reopened_by_policy(effect_class: str) -> None:
    log = history(effect_class)
    text = log.reopen("n1", by="policy")
    assert unproven(log) == ([] if effect_class in ("pure", "idempotent") else [text])


def test_what_is_reopened_in_vain_is_not_judged() -> None:
    log = history()
    log.finish("n1")
    reopened(log)
    assert unproven(log) == []


def test_what_an_earlier_try_is_found_to_have_done_too_takes_nothing_from_the_probe_before() -> None:
    """Two tries went out under one external key: the first is asked for again when the second was found long ago."""
    log = history()
    probed(log)
    ended(log)
    probed(log)
    reopened(log)
    log.start("n2", token=2, incarnation="i2")
    log.about("invocation_probed", "n2", answer="found", external_key=KEY, ask="q", result={"id": "r"})
    log.finish("n2", via="probe", result={"id": "r"})
    log.about("invocation_probed", "n1", answer="found", external_key=KEY, ask="q", result={"id": "r"})
    assert [one.rule for one in verify(log.records).violations] == []
