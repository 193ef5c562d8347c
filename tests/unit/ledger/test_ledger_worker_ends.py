"""The ledger on the end of a worker, and on a call whose own code has raised."""

import pytest

from aetheris.protocol.fold.state import KeyStatus
from aetheris.protocol.messages import events as ev
from tests.testkit.histories import started
from tests.testkit.ledgers import BY_LOCK, SETTLES_S, TTL_S, Surroundings, one, probing, reported, worker_ended
from tests.testkit.tries import try_of


def test_the_end_of_a_worker_is_recorded_once_and_ends_the_wait() -> None:
    surroundings = Surroundings(one("idempotent"))
    ledger = surroundings.ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    surroundings.ended[worker_ended()] = BY_LOCK
    assert ledger.core.worker_ended(worker_ended())
    ledger.settle()
    assert not ledger.core.worker_ended(worker_ended())
    assert ledger.written() == ["worker_ended", "invocation_reopened"] or ledger.written() == [
        "worker_ended",
        "invocation_in_doubt",
        "invocation_reopened",
    ]


def test_a_started_that_is_folded_after_its_workers_end_was_announced_is_concerned_too() -> None:
    surroundings = Surroundings(one("idempotent"), ended={worker_ended(): BY_LOCK})
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"))
    assert "worker_ended" in ledger.written()
    assert ledger.state().status is KeyStatus.REOPENED
    restored = Surroundings(one("idempotent"))
    restored.log.append(started("a", "n1"))
    restored.ids.append("")
    restored.ended[worker_ended()] = BY_LOCK
    assert "worker_ended" in restored.ledger().written()


def test_a_call_whose_own_code_has_raised_is_asked_about_and_goes_on() -> None:
    """Nobody waits for the end of its worker, which lives."""
    ledger = Surroundings(one("probeable")).ledger()
    ledger.add(started("a", "n1"), reported("a", "n1"))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S - 0.1)
    assert (len(ledger.asks), ledger.state().status) == (1, KeyStatus.STARTED)
    ledger.sleep(0.2)
    assert len(ledger.asks) == 2
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED
    (reply,) = [event for event in ledger.surroundings.log if isinstance(event, ev.InvocationReopened)]
    assert (reply.by, reply.evidence[0]["returned"]) == ("probe", try_of("n1"))
    assert reply.evidence[0]["asked_after_s"] >= SETTLES_S


def test_a_timeout_is_no_return() -> None:
    ledger = Surroundings(one("probeable")).ledger()
    ledger.add(started("a", "n1"), reported("a", "n1", returned=False))
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.PARKED


def test_a_return_counts_from_when_it_is_read_and_anew_in_a_new_process() -> None:
    surroundings = Surroundings(one("probeable"))
    surroundings.ledger().add(started("a", "n1"), reported("a", "n1"))
    surroundings.now_s += SETTLES_S + 1
    again = surroundings.ledger()
    again.answer("not_found")
    assert again.state().status is KeyStatus.STARTED
    again.sleep(SETTLES_S + 0.1)
    again.answer("not_found")
    assert again.state().status is KeyStatus.REOPENED


def test_a_return_that_is_told_after_the_ledger_has_doubted_counts_too() -> None:
    ledger = Surroundings(one("probeable")).ledger()
    ledger.add(started("a", "n1"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.add(reported("a", "n1"))
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


def test_a_return_of_another_try_says_nothing_of_this_one() -> None:
    ledger = probing(Surroundings(one("probeable")))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S + 0.1)
    ledger.answer("not_found")
    ledger.add(started("a", "n2", token=2, incarnation="i2"), reported("a", "n1"), reported("a", "nobody"))
    ledger.lease_lapses()
    ledger.answer("not_found")
    ledger.sleep(2 * TTL_S + 0.1)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.PARKED


def test_an_end_that_follows_a_return_moves_nothing() -> None:
    surroundings = Surroundings(one("probeable"))
    ledger = surroundings.ledger()
    ledger.add(started("a", "n1"), reported("a", "n1"))
    ledger.answer("not_found")
    ledger.sleep(SETTLES_S - 0.1)
    surroundings.ended[worker_ended()] = BY_LOCK
    ledger.core.worker_ended(worker_ended())
    ledger.sleep(0.2)
    ledger.answer("not_found")
    assert ledger.state().status is KeyStatus.REOPENED


@pytest.mark.parametrize("times", [1, 2])
def test_an_opaque_call_waits_for_a_human_whoever_has_returned(times: int) -> None:
    ledger = Surroundings(one("opaque")).ledger()
    ledger.add(started("a", "n1"), *[reported("a", "n1")] * times)
    assert ledger.state().status is KeyStatus.PARKED
