"""What a session's body plans, and what it refuses, whatever its client asks."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import Settled
from aetheris.protocol.messages.event_values import RejectReason
from aetheris.protocol.plan.graph import Node
from aetheris.protocol.planning.sessions import (
    MOST_ASKS,
    MOST_TRIES,
    AskRefused,
    CallEnd,
    MadeCall,
    SessionAsk,
    SessionAttach,
    SessionBody,
    SessionCall,
    SessionComplete,
)

MEANT = 64 * "a"


class AskedSession:
    """A session with its asks, as the log would tell them."""

    def __init__(self) -> None:
        self.body = SessionBody(60)
        self.told: list[CallEnd] = []

    def hears(self, payload: Any) -> list[str]:
        return self._told(CallEnd(self.body.wait_id, Settled.SUCCESS, result=payload))

    def attaches(self, name: str) -> list[str]:
        return self.hears(SessionAsk(attach=SessionAttach(body=name)).model_dump(mode="json"))

    def calls(self, name: str, tool: str = "charge", **more: Any) -> list[str]:
        return self.hears(SessionAsk(call=call(name, tool, **more)).model_dump(mode="json"))

    def completes(self, name: str, result: Any = None, frontier: str | None = None) -> list[str]:
        ask = SessionComplete(body=name, result=result, frontier=frontier)
        return self.hears(SessionAsk(complete=ask).model_dump(mode="json"))

    def ends(self, node_id: str, outcome: Settled = Settled.SUCCESS, **more: Any) -> list[str]:
        return self._told(CallEnd(node_id, outcome, **more))

    def expires(self) -> list[str]:
        return self.ends(self.body.wait_id, Settled.REJECTED, rejected_by=RejectReason.EXPIRED)

    def _told(self, end: CallEnd) -> list[str]:
        self.told.append(end)
        return [node.id for node in self.body.told(end) if node.wait is None]


def call(name: str, tool: str = "charge", **more: Any) -> SessionCall:
    return SessionCall(body=name, tool=tool, **more)


def refused(verdict: MadeCall | Node | AskRefused) -> str:
    assert isinstance(verdict, AskRefused), verdict
    return verdict.code


@pytest.fixture
def asked() -> AskedSession:
    found = AskedSession()
    found.attaches("one")
    return found


def test_a_call_is_planned_once_however_often_it_is_asked_for(asked: AskedSession) -> None:
    (planned,) = asked.calls("one", args={"order": "17"})
    assert asked.calls("one", args={"order": "17"}) == []
    assert asked.calls("one", args={"order": "17"}, occurrence=2) == [planned.removesuffix("1") + "2"]
    assert asked.calls("one", args={"order": "17"}, id="pay") == ["session.pay"]
    assert asked.calls("one", args={"order": "17"}, id="pay") == []


def test_who_is_superseded_plans_nothing_and_takes_charge_never_again(asked: AskedSession) -> None:
    asked.attaches("two")
    assert asked.calls("one") == []
    assert refused(asked.body.judge(call("one"))) == "superseded"
    asked.attaches("one")
    assert asked.body.in_charge == "two"


def test_who_asks_beside_another_supersedes_nobody_and_asks_only_for_what_models_want(asked: AskedSession) -> None:
    (code,) = asked.calls("one", args={"order": "17"})
    asked.hears({"attach": {"body": "two", "beside": True}})
    assert asked.body.in_charge == "one"
    (first,) = asked.calls("two", meaning=MEANT)
    assert asked.calls("one", meaning=MEANT) == asked.calls("two", meaning=MEANT) == [], (
        "the same call, whoever wants it"
    )
    assert refused(asked.body.judge(call("two", args={"order": "17"}))) == "beside", "nor is it told what code has done"
    assert refused(asked.body.judge(call("two", "look", reads=True))) == "beside"
    assert asked.completes("two") == []
    assert not asked.body.is_ending
    asked.ends(code)
    asked.ends(first)
    asked.attaches("three")
    assert refused(asked.body.judge(call("one", "mail", meaning=MEANT))) == "superseded"
    assert asked.calls("two", "mail", meaning=MEANT), "who came beside the one before is beside the next one"
    asked.attaches("two")
    assert asked.body.in_charge == "three", "nor does it take charge by that name"
    assert refused(asked.body.judge(call("four", "mail", meaning=64 * "b"))) == "superseded"


def test_who_has_not_attached_plans_nothing() -> None:
    asked = AskedSession()
    assert asked.calls("one") == []
    assert refused(asked.body.judge(call("one"))) == "superseded"


def test_another_process_makes_no_second_path_before_it_has_asked_for_the_first(asked: AskedSession) -> None:
    (first,) = asked.calls("one", args={"order": "17"})
    asked.ends(first)
    asked.attaches("two")
    new = call("two", "refund")
    assert asked.body.judge(new) == AskRefused("unasked", (first,))
    assert asked.calls("two", "refund") == []
    assert refused(asked.body.judge(SessionComplete(body="two"))) == "unasked"
    assert asked.completes("two") == []
    assert not asked.body.is_ending
    assert asked.calls("two", "look", reads=True), "what only reads waits for nothing"
    assert asked.body.unasked([first]) == ()
    assert asked.calls("two", "refund", frontier=asked.body.frontier)
    assert asked.calls("two", "mail"), "it has said so once"


def test_what_surely_failed_or_only_read_or_a_model_asked_for_need_not_be_asked_for(asked: AskedSession) -> None:
    (failed,) = asked.calls("one", "fails")
    asked.ends(failed, Settled.FAILED, sure=True)
    (read,) = asked.calls("one", "look", reads=True)
    asked.ends(read)
    (said,) = asked.calls("one", "mail", meaning=MEANT)
    asked.ends(said)
    asked.attaches("two")
    assert asked.body.expected == frozenset()


def test_what_failed_and_may_have_an_effect_must_be_asked_for(asked: AskedSession) -> None:
    (unsure,) = asked.calls("one", "fails")
    asked.ends(unsure, Settled.FAILED, sure=False)
    asked.attaches("two")
    assert asked.body.expected == {unsure}


def test_a_models_equal_call_is_the_same_until_it_surely_failed(asked: AskedSession) -> None:
    (first,) = asked.calls("one", meaning=MEANT)
    assert asked.calls("one", meaning=MEANT) == [], "it is open"
    asked.ends(first, Settled.FAILED, sure=True)
    (second,) = asked.calls("one", meaning=MEANT)
    asked.ends(second, Settled.FAILED, sure=False)
    assert asked.calls("one", meaning=MEANT) == [], "nobody knows"
    verdict = asked.body.judge(call("one", meaning=MEANT))
    assert isinstance(verdict, MadeCall)
    assert verdict.node.id == second


def test_a_model_repeats_what_succeeded_only_by_its_name_and_once(asked: AskedSession) -> None:
    (first,) = asked.calls("one", meaning=MEANT)
    asked.ends(first)
    assert asked.calls("one", meaning=MEANT) == []
    (second,) = asked.calls("one", meaning=MEANT, repeat_of=first)
    assert asked.calls("one", meaning=MEANT, repeat_of=first) == [], "the same request again"
    asked.ends(second)
    for lie in ("session.said.0.1", second.removesuffix("2") + "9", "x"):
        assert refused(asked.body.judge(call("one", meaning=MEANT, repeat_of=lie))) == "unknown_repeat"


def test_a_model_repeats_nothing_of_which_nobody_knows(asked: AskedSession) -> None:
    (first,) = asked.calls("one", meaning=MEANT)
    assert asked.calls("one", meaning=MEANT, repeat_of=first) == [], "it is open"
    asked.ends(first, Settled.FAILED, sure=False)
    assert asked.calls("one", meaning=MEANT, repeat_of=first) == []


def test_a_model_means_the_same_whatever_it_says_of_what_does_not_count(asked: AskedSession) -> None:
    (first,) = asked.calls("one", meaning=MEANT, args={"at": 1})
    assert asked.calls("one", meaning=MEANT, args={"at": 2}) == []
    verdict = asked.body.judge(call("one", meaning=MEANT, args={"at": 2}))
    assert isinstance(verdict, MadeCall)
    assert verdict.node.id == first


def planned(asked: AskedSession, **more: Any) -> Node:
    """What a model's ask plans."""
    verdict = asked.body.judge(call("one", meaning=MEANT, **more))
    assert isinstance(verdict, Node), verdict
    return verdict


def test_a_models_call_that_surely_failed_is_the_same_occurrence_and_a_repeat_another(asked: AskedSession) -> None:
    (first,) = asked.calls("one", meaning=MEANT)
    asked.ends(first, Settled.FAILED, sure=True)
    assert planned(asked).occurrence == 1, "nothing happened: nobody is asked for a yes as for a repeat"
    (second,) = asked.calls("one", meaning=MEANT)
    asked.ends(second)
    assert planned(asked, repeat_of=second).occurrence == 2
    (third,) = asked.calls("one", meaning=MEANT, repeat_of=second)
    asked.ends(third, Settled.FAILED, sure=True)
    assert (planned(asked).occurrence, planned(asked).id) == (2, second.removesuffix("2") + "4")


@pytest.mark.parametrize("reads", [False, True])
def test_a_models_call_that_surely_fails_each_time_is_made_ten_times_at_most(asked: AskedSession, reads: bool) -> None:
    made: list[str] = []
    for _ in range(MOST_TRIES + 5):
        made += asked.calls("one", meaning=MEANT, reads=reads)
        asked.ends(made[-1], Settled.FAILED, sure=True)
    assert len(made) == (MOST_TRIES + 5 if reads else MOST_TRIES)
    if not reads:
        verdict = asked.body.judge(call("one", meaning=MEANT))
        assert isinstance(verdict, MadeCall)
        assert verdict.node.id == made[-1]


def test_a_run_that_has_ended_tells_a_model_what_it_read_last_and_how_it_failed_last(asked: AskedSession) -> None:
    (read,) = asked.calls("one", "look", meaning=MEANT, reads=True)
    asked.ends(read)
    (failed,) = asked.calls("one", meaning=MEANT)
    asked.ends(failed, Settled.FAILED, sure=True)
    asked.completes("one")
    for tool, reads, node in (("look", True, read), ("charge", False, failed)):
        verdict = asked.body.judge(call("another", tool, meaning=MEANT, reads=reads))
        assert isinstance(verdict, MadeCall)
        assert verdict.node.id == node
    assert refused(asked.body.judge(call("one", "mail", meaning=MEANT))) == "over"


def test_a_model_reads_anew(asked: AskedSession) -> None:
    (first,) = asked.calls("one", "look", meaning=MEANT, reads=True)
    asked.ends(first)
    assert len(asked.calls("one", "look", meaning=MEANT, reads=True)) == 1


def test_another_call_of_the_same_name_is_refused(asked: AskedSession) -> None:
    asked.calls("one", args={"order": "17"}, id="pay")
    assert refused(asked.body.judge(call("one", args={"order": "18"}, id="pay"))) == "changed"
    assert asked.calls("one", args={"order": "18"}, id="pay") == []


@pytest.mark.parametrize("name", ["ask.1", "ask.", "said.1", "pay.undo"])
def test_no_call_has_a_name_of_the_systems_own(asked: AskedSession, name: str) -> None:
    assert refused(asked.body.judge(call("one", id=name))) == "bad_call"
    assert asked.calls("one", id=name) == []


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        [],
        "attach",
        {"attach": {}},
        {"attach": {"body": "a b"}},
        {"attach": {"body": "a"}, "call": {"body": "a", "tool": "t"}},
        {"call": {"body": "one", "tool": "charge", "args": {"a": {"$ref": "x"}}}},
        {"call": {"body": "one", "tool": "charge", "args": {"a": 2**60}}},
        {"call": {"body": "one", "tool": "charge", "occurrence": 0}},
        {"call": {"body": "one", "tool": "charge", "more": 1}},
    ],
)
def test_what_is_no_ask_changes_nothing_but_the_number(asked: AskedSession, payload: Any) -> None:
    before = asked.body.number
    assert asked.hears(payload) == []
    assert (asked.body.number, asked.body.in_charge, asked.body.calls) == (before + 1, "one", {})


def test_it_ends_when_its_open_calls_have_and_nothing_is_asked_any_more(asked: AskedSession) -> None:
    (open_call,) = asked.calls("one")
    asked.completes("one", {"done": True})
    assert asked.calls("one", "mail") == []
    assert refused(asked.body.judge(call("one", "mail"))) == "over"
    assert asked.body.end is None
    asked.ends(open_call)
    assert asked.body.end is not None
    assert asked.body.end.result == {"done": True}
    assert isinstance(asked.body.judge(call("another")), MadeCall), "who runs it once more is told what it did"


def test_silence_ends_it_unless_a_call_is_open(asked: AskedSession) -> None:
    (open_call,) = asked.calls("one")
    asked.expires()
    assert asked.body.end is None
    asked.ends(open_call)
    asked.expires()
    assert asked.body.end is not None
    assert (asked.body.end.error or "").startswith("idle")


def test_it_has_room_for_so_many_asks_and_can_still_be_completed(asked: AskedSession) -> None:
    while asked.body.number < MOST_ASKS:
        asked.hears(None)
    assert refused(asked.body.judge(call("one"))) == "full"
    asked.completes("one", 1)
    assert asked.body.end is not None


def test_a_body_that_is_told_the_same_again_plans_the_same(asked: AskedSession) -> None:
    """It dies anywhere, and begins anew over what is recorded."""
    (first,) = asked.calls("one", args={"order": "17"})
    asked.ends(first)
    asked.attaches("two")
    asked.calls("two", args={"order": "17"})
    asked.calls("two", "mail", frontier=asked.body.frontier)
    asked.expires()
    again = SessionBody(60)
    for end in asked.told:
        again.told(end)
    assert again == asked.body
