"""A step's cancel that comes beside another word about the step: it keeps the call from starting, or is on record."""

import pytest

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.fold.start import start_is_void
from aetheris.protocol.fold.state import KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import CancelContract, Respond
from aetheris.protocol.messages.events import Event
from aetheris.protocol.planning.approvals import request_id
from tests.testkit.histories import JOB, TENANT, about, finished, graph, key_of, started
from tests.testkit.ledgers import Behind, Ledger, Surroundings
from tests.testkit.principals import said_by

PLAN = graph({"id": "a"}, act={"irreversible": True, "effect_class": "opaque"})
KEY = key_of("a")


def cancel(ledger: Ledger, offset: int = 8) -> None:
    contract = execution_id(JOB, "a", KEY)
    word = CancelContract(job_id=JOB, by="carol", tenant=TENANT, execution_id=contract, as_of=-1)
    ledger.core.hear(word, "cancel", offset)


def approve(ledger: Ledger) -> None:
    request = request_id(JOB, "a", KEY)
    word = Respond(job_id=JOB, **said_by("bob"), tenant=TENANT, request_id=request, action="approve", as_of=-1)
    ledger.core.hear(word, "yes", 7)


def asked() -> Behind:
    ledger = Behind(Surroundings(PLAN))
    ledger.request("a", offset=1)
    assert state(ledger).is_asking
    return ledger


def state(ledger: Ledger) -> KeyState:
    return ledger.job.keys[KEY]


def is_called_off(ledger: Ledger) -> bool:
    found = state(ledger)
    return (found.outcome, found.reason, found.sure) == (Settled.REJECTED, "cancelled", True)


def test_behind_a_yes_of_the_same_round_it_keeps_the_call_from_starting() -> None:
    ledger = asked()
    approve(ledger)
    cancel(ledger)
    ledger.settle()
    assert ledger.written()[-2:] == ["approval_decided", "invocation_rejected"]
    assert is_called_off(ledger)
    assert start_is_void(ledger.job, started("a", "n1")) is not None


def test_behind_a_yes_that_is_in_the_log_it_does_too() -> None:
    ledger = asked()
    approve(ledger)
    ledger.settle()
    assert len(ledger.grants) == 1
    cancel(ledger)
    ledger.settle()
    assert is_called_off(ledger)


def test_behind_the_start_it_is_on_record_and_there_is_no_further_try() -> None:
    """The call began before the word that would have kept it from that."""
    ledger = asked()
    approve(ledger)
    ledger.settle()
    ledger.meanwhile = (started("a", "n1"),)
    cancel(ledger)
    ledger.settle()
    types = [event.event_type for event in ledger.surroundings.log]
    assert types[-3:] == ["tool_invocation_started", "invocation_rejected", "invocation_cancel_requested"]
    assert (state(ledger).status, state(ledger).cancel_requested) == (KeyStatus.STARTED, True)
    assert ledger.core.open_command() is None


def test_behind_a_retry_by_hand_it_is_on_record() -> None:
    """What was parked when he cancelled it is tried again on another's word."""
    ledger = Behind(Surroundings(graph({"id": "a"}, act={"effect_class": "opaque"})))
    parked = about(ev.InvocationParked, "a", invocation_id="n1", reason="opaque")
    ledger.add(started("a", "n1"), parked)
    ledger.meanwhile = (about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="human"),)
    cancel(ledger)
    ledger.settle()
    assert state(ledger).cancel_requested
    assert (state(ledger).outcome, state(ledger).reason, state(ledger).sure) == (Settled.FAILED, "cancelled", False)


def test_until_the_log_has_its_end_a_successor_reads_it_again() -> None:
    ledger = asked()
    approve(ledger)
    cancel(ledger)
    ledger.core.to_fetch(ledger.surroundings.now())
    assert ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now()) != []
    assert ledger.core.open_command() == 8
    again = ledger.surroundings.ledger()
    approve(again)
    cancel(again)
    again.settle()
    assert is_called_off(again)
    assert again.core.open_command() is None


@pytest.mark.parametrize("events", [(), (started("a", "n1"), finished("a", "n1"))], ids=["pending", "ended"])
def test_of_what_nobody_asked_for_or_is_over_nothing_is_left_to_wait_for(events: tuple[Event, ...]) -> None:
    ledger = Surroundings(graph({"id": "a"})).ledger()
    ledger.add(*events)
    before = list(ledger.surroundings.log)
    cancel(ledger)
    ledger.settle()
    assert ledger.surroundings.log == before
    assert ledger.core.open_command() is None
