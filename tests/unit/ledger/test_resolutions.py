"""Where a rule asks for several: what one says of a parked call is a vote, and what they say together settles it."""

from typing import Any

import pytest

from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.principals import Delegation, PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Resolve
from tests.testkit.histories import JOB, TENANT, about, started
from tests.testkit.ledgers import Ledger
from tests.testkit.principals import person, said_by
from tests.unit.ledger.test_approvals import PAID, asked, key, respond, state, world
from tests.unit.ledger.test_votes import TWO

THREE = TWO.replace("approvals = 2", "approvals = 3")


def parked(policy: str = TWO) -> Ledger:
    """A payment that two, or three, have approved, and of which nobody knows what became of it."""
    ledger = asked(policy)
    for by in ("bob", "carol", "dan"):
        respond(ledger, "approve", by=by, name=f"yes-{by}")
    ledger.add(started("a", "n1", args=PAID, tool="pay"))
    ledger.add(park("n1"))
    assert state(ledger).status is KeyStatus.PARKED
    return ledger


def park(invocation_id: str) -> ev.Event:
    return about(ev.InvocationParked, "a", args=PAID, tool="pay", invocation_id=invocation_id, reason="?")


def say(ledger: Ledger, by: str, verdict: str = "happened", **fields: Any) -> None:
    heard(ledger, by, verdict, **fields)
    ledger.settle()


def heard(ledger: Ledger, by: str, verdict: str = "happened", id_: str | None = None, **fields: Any) -> None:
    body = {
        "execution_id": execution_id(JOB, "a", key()),
        "verdict": verdict,
        "evidence": f"{by} looked",
        "as_of": ledger.core.folded,
    }
    command = Resolve.model_validate({"job_id": JOB, **said_by(by), "tenant": TENANT} | body | fields)
    ledger.core.hear(command, id_ or f"w-{by}-{verdict}", 9)


def settlement(ledger: Ledger) -> ev.ToolInvocationFinished:
    found = [event for event in ledger.surroundings.log if isinstance(event, ev.ToolInvocationFinished)]
    assert len(found) == 1
    return found[0]


def words(ledger: Ledger) -> list[tuple[str, str]]:
    return [(vote.by, vote.verdict) for _, vote in state(ledger).resolutions]


@pytest.mark.parametrize(("verdict", "outcome"), [("happened", Settled.SUCCESS), ("not_executed", Settled.FAILED)])
def test_what_became_of_it_is_settled_by_as_many_as_approve_it(verdict: str, outcome: Settled) -> None:
    ledger = parked()
    say(ledger, "bob", verdict, result={"id": 3})
    assert (ledger.written()[-1], state(ledger).status) == ("resolution_voted", KeyStatus.PARKED)
    say(ledger, "bob", verdict, result={"id": 3})
    assert state(ledger).status is KeyStatus.PARKED, "who says it twice is one"
    say(ledger, "carol", verdict, result={"id": 3})
    assert state(ledger).outcome is outcome
    assert (settlement(ledger).votes, settlement(ledger).by) == (("bob", "carol"), "carol")
    assert settlement(ledger).evidence == "carol looked"
    if verdict == "happened":
        assert state(ledger).result == {"id": 3}


@pytest.mark.parametrize(
    "second",
    [
        {"by": "ann"},
        {"by": "carol", "tenant": "other"},
        {"by": "carol", "principal": RecordedPrincipal(id="carol", kind=PrincipalKind.AGENT, roles=tuple(Role))},
        {"by": "carol", "principal": person("bob")},
        {"by": "carol", "verdict": "not_executed"},
        {"by": "carol", "result": {"id": 4}},
    ],
)
def test_who_may_not_say_it_or_says_something_else_is_no_second_one(second: dict[str, Any]) -> None:
    ledger = parked()
    say(ledger, "bob", result={"id": 3})
    word: dict[str, Any] = {"result": {"id": 3}} | second
    say(ledger, **word)
    assert state(ledger).status is KeyStatus.PARKED
    say(ledger, "dan", result={"id": 3})
    assert settlement(ledger).votes == ("bob", "dan")


def test_who_speaks_in_anothers_place_is_one_voice_with_that_one() -> None:
    ledger = parked()
    lent = Delegation.model_validate(
        {"principal": "bob", "until": "2030-01-02T00:00:00Z", "at": "2030-01-01T00:00:00Z"}
    )
    say(ledger, "bob")
    say(ledger, "carol", principal=person("carol").model_copy(update={"delegation": lent}))
    assert state(ledger).status is KeyStatus.PARKED


def test_who_changes_his_mind_has_said_only_what_he_said_last() -> None:
    ledger = parked()
    say(ledger, "bob", "not_executed")
    say(ledger, "bob", "happened")
    say(ledger, "carol", "not_executed")
    assert (words(ledger), state(ledger).status) == (
        [("bob", "not_executed"), ("bob", "happened"), ("carol", "not_executed")],
        KeyStatus.PARKED,
    )
    say(ledger, "dan", "happened")
    assert (state(ledger).outcome, settlement(ledger).votes) == (Settled.SUCCESS, ("bob", "dan"))


@pytest.mark.parametrize("id_", ["w-bob-happened", "another id, which nobody signs"])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_repeat_of_a_word_that_its_person_took_back_does_not_bring_it_back(
    id_: str, twice: bool, restarted: bool
) -> None:
    ledger = parked()
    before = ledger.core.folded
    say(ledger, "bob", "happened")
    if twice:
        before = ledger.core.folded
        say(ledger, "bob", "happened")
    say(ledger, "bob", "not_executed")
    say(ledger, "carol", "happened")
    ledger = ledger.surroundings.ledger() if restarted else ledger
    heard(ledger, "bob", "happened", id_, as_of=before)
    ledger.settle()
    assert state(ledger).status is KeyStatus.PARKED
    assert [one.why for one in ledger.core.ignored] == ["he has said something behind what its writer had read"]
    say(ledger, "bob", "happened")
    assert settlement(ledger).votes == ("carol", "bob"), "he may still change his mind"


def test_all_words_read_again_come_to_the_same() -> None:
    ledger = parked(THREE)
    heard_at: list[tuple[str, str, int]] = []
    for by, verdict in (("bob", "happened"), ("bob", "not_executed"), ("carol", "happened"), ("dan", "happened")):
        heard_at.append((by, verdict, ledger.core.folded))
        say(ledger, by, verdict)
    said = words(ledger)
    again = ledger.surroundings.ledger()
    for by, verdict, as_of in heard_at:
        heard(again, by, verdict, as_of=as_of)
    again.settle()
    assert (words(again), state(again).status) == (said, KeyStatus.PARKED)


def test_a_repeat_that_another_ledger_wrote_late_is_void() -> None:
    ledger = parked()
    before = ledger.core.folded
    say(ledger, "bob", "happened")
    first = next(event for event in ledger.surroundings.log if isinstance(event, ev.ResolutionVoted))
    assert first.as_of == before
    say(ledger, "bob", "not_executed")
    say(ledger, "carol", "happened")
    ledger.add(first, first.model_copy(update={"as_of": None}))
    assert (words(ledger)[-1], state(ledger).status) == (("carol", "happened"), KeyStatus.PARKED)


def test_of_two_at_once_neither_was_the_last_and_it_is_settled_all_the_same() -> None:
    ledger = parked()
    heard(ledger, "bob")
    heard(ledger, "carol")
    ledger.settle()
    assert settlement(ledger).votes == ("bob", "carol")


def test_votes_outlive_the_ledger_and_what_they_come_to_is_written_by_the_next() -> None:
    ledger = parked()
    say(ledger, "bob", result=[1])
    say(ledger.surroundings.ledger(), "carol", result=[1])
    log = [event for event in ledger.surroundings.log if not isinstance(event, ev.ToolInvocationFinished)]
    fresh = world(TWO)
    fresh.log, fresh.ids = [one for one in log if not isinstance(one, ev.CommandCommitted)], [""] * (len(log) - 1)
    after = fresh.ledger()
    assert (state(after).result, settlement(after).votes) == ([1], ("bob", "carol"))


def test_another_try_needs_one_word_and_as_many_yes() -> None:
    ledger = parked()
    say(ledger, "bob", "retry")
    again = state(ledger).requested
    assert (state(ledger).status, again and again.approvals) == (KeyStatus.REOPENED, 2)


def test_an_emergency_is_one_persons() -> None:
    ledger = parked()
    say(ledger, "bob", principal=person("bob").model_copy(update={"breaks_glass": True}))
    assert (state(ledger).outcome, settlement(ledger).votes) == (Settled.SUCCESS, None)


def test_words_on_an_earlier_try_are_none_on_a_later_one() -> None:
    ledger = parked(THREE)
    say(ledger, "bob")
    say(ledger, "carol")
    say(ledger, "dan", "retry")
    assert state(ledger).status is KeyStatus.REOPENED
    for by in ("bob", "carol", "dan"):
        request = f"{JOB}:{execution_id(JOB, 'a', key())}:2"
        respond(ledger, "approve", by=by, name=f"again-{by}", request_id=request)
    ledger.add(started("a", "n2", args=PAID, tool="pay", token=2))
    ledger.add(park("n2"))
    say(ledger, "dan")
    assert (words(ledger), state(ledger).status) == ([("dan", "happened")], KeyStatus.PARKED)
