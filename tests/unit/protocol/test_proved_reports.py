"""What a try says of itself counts with its own word only, and each word says one thing (docs/guarantees.md)."""

from itertools import product
from typing import Any

import pytest

from aetheris.protocol.base.words import TryWord
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import JobState, KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome, Via
from tests.testkit.histories import about, fold, graph, key_of, planned, started
from tests.testkit.tries import try_of, words_of

PLAN = planned(graph({"id": "a"}, act={"irreversible": True}))
ALLOWED = about(ev.PolicyAllowed, "a", args_hash="h", tool_version="1", rule="r")
HISTORY = (PLAN, ALLOWED, started("a", "n1"))
PARKED = about(ev.InvocationParked, "a", invocation_id="n1", reason="nobody knows")
EFFECT = (Outcome.SUCCESS, Outcome.COMPENSATABLE)

MAY_SAY: dict[tuple[Via, Outcome], TryWord | None] = {
    **dict.fromkeys(product((Via.EXECUTOR, Via.LATE), (Outcome.RETRYABLE, Outcome.PERMANENT)), TryWord.NO_EFFECT),
    **dict.fromkeys(product((Via.EXECUTOR, Via.LATE, Via.CATCH_UP), EFFECT), TryWord.EFFECT),
    **dict.fromkeys(product((Via.PROBE, Via.HUMAN), EFFECT), None),
    **dict.fromkeys(product((Via.HUMAN, Via.LEDGER), (Outcome.PERMANENT,)), None),
}
"""As docs/adr/0009-signed-records.md has it; None: by a signature."""

WORDS: dict[str, str | None] = {
    "none": None,
    "no digits": "z" * 64,
    "zeros": "0" * 64,
    "its name": try_of("n1"),
    "another try's": words_of("n2").word(TryWord.NO_EFFECT),
    **{f"for {one.name}": words_of("n1").word(one) for one in TryWord},
}


def end(via: Via, outcome: Outcome, word: str | None) -> ev.ToolInvocationFinished:
    event = about(ev.ToolInvocationFinished, "a", invocation_id="n1", outcome=outcome, via=via)
    return event.model_copy(update={"word": word})


def doubt(word: str | None, *, returned: bool = True) -> ev.InvocationInDoubt:
    event = about(ev.InvocationInDoubt, "a", invocation_id="n1", error_class="E", returned=returned)
    return event.model_copy(update={"word": word})


def key(job: JobState) -> KeyState:
    return job.keys[key_of("a")]


@pytest.mark.parametrize("named", WORDS)
@pytest.mark.parametrize("via", Via)
@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_counts_with_the_word_for_it(via: Via, outcome: Outcome, named: str) -> None:
    """Said of what runs, and of what is parked where that is a person's to settle."""
    wanted = MAY_SAY.get((via, outcome))
    proved = (via, outcome) in MAY_SAY and wanted in (None, *(one for one in TryWord if named == f"for {one.name}"))
    job = fold(*HISTORY, *((PARKED,) if via is Via.HUMAN else ()))
    assert apply(job, end(via, outcome, WORDS[named]), 9) == proved


@pytest.mark.parametrize("named", [name for name in WORDS if name != "for NO_EFFECT"])
@pytest.mark.parametrize("via", Via)
def test_no_forged_report_reopens_a_call_that_is_parked(via: Via, named: str) -> None:
    """Also not by him who has read in the log that it is in doubt, and in the store that it took effect."""
    job = fold(*HISTORY, PARKED)
    assert not apply(job, end(via, Outcome.RETRYABLE, WORDS[named]), 9)
    assert (key(job).status, key(job).external_attempt, key(job).unresolved) == (KeyStatus.PARKED, 1, {try_of("n1")})


@pytest.mark.parametrize("named", WORDS)
@pytest.mark.parametrize("returned", [True, False])
def test_a_doubt_counts_with_the_word_for_it_and_is_the_ledgers_without_either(named: str, *, returned: bool) -> None:
    wanted = TryWord.NO_MORE if returned else TryWord.IN_DOUBT
    ledgers = not returned and WORDS[named] is None
    job = fold(*HISTORY)
    assert apply(job, doubt(WORDS[named], returned=returned), 9) == (named == f"for {wanted.name}" or ledgers)
    assert key(job).returned == ({try_of("n1")} if named == "for NO_MORE" and returned else frozenset())


def test_a_forged_return_lets_no_probe_reopen_what_is_parked() -> None:
    probed = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="probe")
    for forged in (doubt(None), doubt(WORDS["for IN_DOUBT"]), doubt(WORDS["another try's"])):
        assert not apply(fold(*HISTORY, PARKED, forged), probed, 9)
    assert apply(fold(*HISTORY, PARKED, doubt(WORDS["for NO_MORE"])), probed, 9)


def test_a_forged_success_behind_the_end_is_no_alarm_and_one_with_its_word_is() -> None:
    """Of an earlier try, that may still have acted."""
    again: tuple[Any, ...] = (
        about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy"),
        started("a", "n2", token=2),
        about(ev.ToolInvocationFinished, "a", invocation_id="n2", outcome=Outcome.SUCCESS, via=Via.PROBE),
    )
    job = fold(*HISTORY, *again)
    assert key(job).outcome is Settled.SUCCESS
    assert not apply(job, end(Via.LATE, Outcome.SUCCESS, WORDS["another try's"]), 9)
    assert key(job).alarms == ()
    assert apply(job, end(Via.LATE, Outcome.SUCCESS, WORDS["for EFFECT"]), 10)
    assert key(job).alarms == (try_of("n1"),)


@pytest.mark.parametrize("said", ["1", '"true"', "1.0"])
def test_a_return_is_said_as_a_json_true_or_not_at_all(said: str) -> None:
    """Proofs take no other for one, nor does the fold: it can't read the record."""
    event = doubt(None)
    changed = event.model_dump_json().replace('"returned":true', f'"returned":{said}')
    assert ev.InvocationInDoubt.model_validate_json(event.model_dump_json()) == event
    with pytest.raises(ValueError, match="returned"):
        ev.InvocationInDoubt.model_validate_json(changed)
