"""The ledger asks a probe: which answers prove something, and when what is parked is asked about again."""

from typing import Any

import pytest

from aetheris.protocol.base.keys import external_key
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.fold.workers import Ended
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Via
from tests.testkit.histories import JOB, about, finished, graph, key_of, started
from tests.testkit.ledgers import (
    BY_LOCK,
    SETTLES_S,
    TTL_S,
    Ledger,
    Surroundings,
    answered,
    effect,
    one,
    probing,
    reported,
    worker_ended,
)
from tests.testkit.tries import try_of


def test_what_a_probe_finds_settles_the_key() -> None:
    ledger = probing(Surroundings(one("probeable")))
    assert ledger.asks[0].external_key == external_key(JOB, "a", 0)
    ledger.answer("found", result={"id": 9}, external_id="ch_9", evidence=({"status": 200},))
    state = ledger.state()
    assert (state.outcome, state.via, state.result, state.external_id) == (
        Settled.SUCCESS,
        Via.PROBE,
        {"id": 9},
        "ch_9",
    )
    assert ledger.written()[-2:] == ["tool_invocation_finished", "command_committed"]


def test_not_found_is_a_proof_only_after_the_end_and_settles_within() -> None:
    ledger = probing(Surroundings(one("probeable")))
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.STARTED
    ledger.sleep(SETTLES_S - 0.1)
    assert (len(ledger.asks), ledger.state().status) == (1, KeyStatus.STARTED)
    ledger.sleep(0.2)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED
    assert ledger.grants[-1].token == 2


@pytest.mark.parametrize(
    ("stated", "bound_s"), [({}, 3.0), ({"settles_within_s": None}, 3.0), ({"settles_within_s": 7.0}, 7.0)]
)
def test_a_pin_that_states_no_bound_has_its_timeout(stated: dict[str, Any], bound_s: float) -> None:
    plan = graph({"id": "a"}, act={"effect_class": "probeable", "timeout_s": 3.0, **stated})
    ledger = probing(Surroundings(plan))
    ledger.answer("not_found")
    ledger.sleep(bound_s - 0.1)
    assert (len(ledger.asks), ledger.state().status) == (1, KeyStatus.STARTED)
    ledger.sleep(0.2)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


def test_a_bound_of_nothing_is_the_authors_word() -> None:
    ledger = probing(Surroundings(graph({"id": "a"}, act={"effect_class": "probeable", "settles_within_s": 0})))
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


def test_a_reopening_says_how_long_after_the_end_it_was_asked() -> None:
    ledger = probing(Surroundings(one("probeable")))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    (reported,) = [event for event in ledger.surroundings.log if isinstance(event, ev.InvocationReopened)]
    assert SETTLES_S <= reported.evidence[0]["asked_after_s"] < SETTLES_S + 1


def test_settles_within_starts_anew_in_a_new_process() -> None:
    surroundings = Surroundings(one("probeable"))
    probing(surroundings)
    surroundings.now_s += SETTLES_S + 1
    again = surroundings.ledger()
    again.answer("not_found")
    assert again.state().status is KeyStatus.STARTED
    again.sleep(SETTLES_S + 0.1)
    again.answer("not_found")
    assert again.state().status is KeyStatus.REOPENED


def test_an_answer_to_another_process_or_an_older_question_proves_nothing() -> None:
    surroundings = Surroundings(one("probeable"))
    first = probing(surroundings)
    first.sleep(SETTLES_S + 0.1)
    old, new = first.asks[0], first.asks[-1]
    assert old.ask != new.ask
    first.add(about(ev.InvocationProbed, "a", **answered(old, "not_found")))
    assert first.state().status is KeyStatus.STARTED
    second = surroundings.ledger()
    second.add(about(ev.InvocationProbed, "a", **answered(new, "not_found")))
    assert second.state().status is KeyStatus.STARTED


def test_an_answer_counts_when_its_question_is_not_waited_for_any_more() -> None:
    ledger = probing(Surroundings(one("probeable")))
    while ledger.state().status is KeyStatus.STARTED:
        ledger.sleep(10.0)
    assert ledger.state().status is KeyStatus.PARKED
    before, after = ledger.asks[0], ledger.asks[-1]
    ledger.add(about(ev.InvocationProbed, "a", **answered(before, "not_found")))
    assert ledger.state().status is KeyStatus.PARKED, "it was sent before the bound had passed"
    ledger.add(about(ev.InvocationProbed, "a", **answered(after, "not_found")))
    assert ledger.state().status is KeyStatus.REOPENED
    assert ledger.grants[-1].token == 2


def test_found_counts_whoever_asked_and_also_when_it_is_read_only_after_a_restart() -> None:
    surroundings = Surroundings(one("probeable"))
    asked = probing(surroundings).asks[0]
    surroundings.log.append(about(ev.InvocationProbed, "a", **answered(asked, "found")))
    surroundings.ids.append("")
    assert surroundings.ledger().state().outcome is Settled.SUCCESS


def test_what_is_found_late_belongs_to_the_try_in_charge_that_sends_the_same_key() -> None:
    ledger = probing(Surroundings(one("probeable")))
    first = ledger.asks[0]
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED
    ledger.add(started("a", "n2", token=2, incarnation="i2"))
    ledger.add(about(ev.InvocationProbed, "a", **answered(first, "found")))
    assert ledger.state().settled_by == try_of("n2")
    ledger.add(finished("a", "n2"))
    assert ledger.state().alarms == ()


def test_not_found_without_a_known_end_is_parked_after_a_last_question() -> None:
    ledger = Surroundings(one("probeable")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    assert (len(ledger.asks), ledger.state().status) == (2, KeyStatus.STARTED)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.PARKED


def test_an_end_that_becomes_known_while_waiting_leads_to_another_question() -> None:
    surroundings = Surroundings(one("probeable"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(TTL_S)
    surroundings.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.sleep(SETTLES_S + 0.1)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


def asleep_and_parked(effect_class: str = "probeable", text: str = "not_found") -> Ledger:
    """In doubt, and its worker is not known to have ended: a human is asked."""
    ledger = Surroundings(one(effect_class)).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    while ledger.state().status is KeyStatus.STARTED:
        ledger.answer(text)
        ledger.sleep(2 * TTL_S + 0.1)
    assert ledger.state().status is KeyStatus.PARKED
    return ledger


def ends(ledger: Ledger, incarnation: str = "i1") -> None:
    """By its lock or by a person's word, all the same here."""
    ledger.surroundings.ended[worker_ended(incarnation)] = BY_LOCK
    ledger.core.worker_ended(worker_ended(incarnation))
    ledger.settle()


@pytest.mark.parametrize("text", ["not_found", "unknown"])
def test_a_parked_call_is_asked_about_again_once_its_worker_has_ended_and_goes_on(text: str) -> None:
    ledger = asleep_and_parked(text=text)
    asked = len(ledger.asks)
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    assert len(ledger.asks) > asked
    assert ledger.state().status is KeyStatus.PARKED
    ledger.answer("not_found")
    assert ledger.written().count("worker_ended") == 1
    assert (ledger.state().status, ledger.written()[-1]) == (KeyStatus.REOPENED, "invocation_reopened")
    assert len(ledger.grants) == 1


def test_what_is_found_of_a_parked_call_once_its_worker_has_ended_settles_it() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("found", result={"id": 9}, external_id="ch_9")
    assert (ledger.state().outcome, ledger.state().via) == (Settled.SUCCESS, Via.PROBE)


@pytest.mark.parametrize("effect_class", ["probeable", "opaque"])
def test_so_does_the_effect_that_it_left_in_the_store(effect_class: str) -> None:
    ledger = asleep_and_parked(effect_class)
    ledger.surroundings.effects[key_of("a")] = {try_of("n1"): effect("a", "n1", {"id": 1})}
    ends(ledger)
    assert (ledger.state().outcome, ledger.state().via) == (Settled.SUCCESS, Via.CATCH_UP)


def test_a_parked_call_that_says_that_it_has_returned_is_asked_about_again_too() -> None:
    ledger = asleep_and_parked()
    ledger.add(reported("a", "n1"))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


def test_a_restart_between_the_end_and_the_question_asks_it() -> None:
    ledger = asleep_and_parked()
    end = ev.WorkerEnded(job_id=JOB, worker_id="w", incarnation="i1", how="lock")
    for known in (True, False):  # in the job's log already, or in the topic of workers only
        surroundings = Surroundings(one("probeable"), ended={worker_ended(): BY_LOCK})
        surroundings.log = [*ledger.surroundings.log, *([end] if known else [])]
        surroundings.ids = [""] * len(surroundings.log)
        again = surroundings.ledger()
        again.sleep(SETTLES_S + 0.1)
        again.answer("not_found")
        assert again.state().status is KeyStatus.REOPENED


def test_a_parked_call_is_left_to_its_human_by_the_end_of_another_worker_or_of_an_opaque_one() -> None:
    other = asleep_and_parked()
    asked = len(other.asks)
    ends(other, "i2")
    other.sleep(600)
    assert (other.state().status, len(other.asks)) == (KeyStatus.PARKED, asked)
    opaque = asleep_and_parked("opaque")
    ends(opaque)
    opaque.sleep(600)
    assert (opaque.state().status, opaque.core.next_due()) == (KeyStatus.PARKED, None)
    assert opaque.written().count("invocation_parked") == 1


def test_when_nobody_can_tell_it_stays_parked_and_is_asked_about_no_more() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    while (asked := len(ledger.asks)) < 50:
        ledger.answer("unknown")
        ledger.sleep(120)
        if len(ledger.asks) == asked:
            break
    assert (ledger.state().status, ledger.core.next_due()) == (KeyStatus.PARKED, None)
    assert ledger.written().count("invocation_parked") == 1
    ledger.resolve("not_executed")
    assert ledger.state().outcome is Settled.FAILED


@pytest.mark.parametrize("parked", [True, False])
def test_who_submitted_the_job_gets_no_other_try_by_ending_its_worker(parked: bool) -> None:
    ledger = asleep_and_parked() if parked else Surroundings(one("probeable")).ledger()
    if not parked:
        ledger.add(started("a", "n1"))
    own = Ended(incarnation="i1", how="human", by=ledger.job.created.submitted_by, evidence="it is dead")
    ledger.surroundings.ended[worker_ended()] = own
    ledger.core.worker_ended(worker_ended())
    ledger.surroundings.held.clear()
    for _ in range(20):
        ledger.sleep(TTL_S)
        if ledger.asks:
            ledger.answer("not_found")
    assert ledger.written().count("worker_ended") == 1
    assert "invocation_reopened" not in ledger.written()
    assert ledger.state().status is KeyStatus.PARKED


def test_a_human_who_was_faster_than_the_probe_has_said_it() -> None:
    ledger = asleep_and_parked()
    ends(ledger)
    ledger.sleep(SETTLES_S + 0.1)
    ledger.resolve("retry")
    token = ledger.state().fencing_token
    ledger.answer("not_found")
    assert (ledger.state().status, ledger.state().fencing_token) == (KeyStatus.REOPENED, token)


def test_dont_know_is_asked_again_then_parked() -> None:
    ledger = probing(Surroundings(one("probeable")))
    ledger.answer("unknown")
    ledger.sleep(1.1)
    ledger.answer("unknown")
    ledger.sleep(31)
    assert len(ledger.asks) >= 3
    assert ledger.state().status is KeyStatus.STARTED
    ledger.sleep(31)
    assert ledger.state().status is KeyStatus.PARKED
