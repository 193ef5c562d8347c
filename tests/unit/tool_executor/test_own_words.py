"""What a try says of itself has its word, and nothing else has; of what it never called, too."""

import json
from typing import Any

import pytest

from aetheris.protocol.base.words import SECRET_BYTES, TryWord, TryWords
from aetheris.protocol.fold.reports import is_proved_doubt, is_proved_end
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Outcome
from aetheris.sdk.outcomes import InDoubt, Permanent, Retryable, Succeeded
from aetheris.tool_executor.core import reports
from aetheris.tool_executor.core.tries import CallRefusal
from aetheris.tool_executor.core.unread_tries import KEPT, UnreadTries
from tests.testkit.executor_cores import CoreBench, bench
from tests.testkit.histories import JOB, about, finished, key_of, sealed, started
from tests.testkit.tries import try_of, words_of

PURE = {"act": {"effect_class": "pure"}}


@pytest.mark.parametrize(
    ("reply", "tools", "word"),
    [
        (Retryable("503"), {}, TryWord.NO_EFFECT),
        (Permanent("no such account"), {}, TryWord.NO_EFFECT),
        (InDoubt("ReadTimeout"), {}, TryWord.IN_DOUBT),
        (InDoubt("ReadError", returned=True), {}, TryWord.NO_MORE),
        (InDoubt("ReadTimeout"), PURE, TryWord.NO_EFFECT),
    ],
)
def test_what_failed_or_is_in_doubt_says_so_with_just_its_word(reply: Any, tools: Any, word: TryWord) -> None:
    invocation = bench(**tools).declared("a")
    event: Any = reports.unsuccessful(invocation, reply)
    assert event.word == words_of("n0").word(word)
    assert is_proved_end(event) if isinstance(event, ev.ToolInvocationFinished) else is_proved_doubt(event)


def test_a_success_its_kept_effect_and_what_was_never_called_have_theirs() -> None:
    invocation = bench().declared("a")
    done = reports.succeeded(invocation, Succeeded({"v": 1}), "h", {"v": 1})
    kept = json.loads(reports.effect_value([event.model_dump_json().encode() for event in done]))
    assert kept["finished"]["word"] == words_of("n0").word(TryWord.EFFECT)
    refused = reports.refused(invocation, CallRefusal(Outcome.RETRYABLE, "no"))
    unexecuted = reports.not_executed(invocation.started, invocation.words, "withdrawn")
    assert refused.word == unexecuted.word == words_of("n0").word(TryWord.NO_EFFECT)
    assert is_proved_end(refused)
    assert is_proved_end(unexecuted)


def test_no_secret_is_shown_by_what_is_held_while_it_runs() -> None:
    invocation = bench().declared("a")
    for shown in (repr(invocation), str(invocation), repr(invocation.words), repr(invocation.run)):
        assert not any(invocation.words.word(one) in shown for one in TryWord)
        assert "\\x" not in shown
    assert not any(invocation.words.word(one) in invocation.started.model_dump_json() for one in TryWord)


def test_of_too_many_tries_that_are_never_read_the_oldest_is_forgotten() -> None:
    unread, other = UnreadTries(), started("a", "n1")
    unread.put(stray("first"), words_of("first"))
    unread.put(stray("first"), words_of("first"))
    for number in range(KEPT - 1):
        words = TryWords.of(number.to_bytes(SECRET_BYTES, "big"))
        unread.put(other.model_copy(update={"invocation_id": words.invocation_id}), words)
    unread.put(stray("last"), words_of("last"))
    assert unread.take(stray("first")) is None
    assert unread.take(stray("last")) == words_of("last")
    assert unread.take(stray("last")) is None


@pytest.mark.parametrize("change", [{"job_id": "another"}, {"idempotency_key": key_of("b")}])
def test_who_writes_a_trys_name_elsewhere_is_not_given_its_words(change: dict[str, str]) -> None:
    """In another partition of the process, in a job of his own: what is called would be said never to have been."""
    made = forgetful()
    assert made.unread.take(stray().model_copy(update=change)) is None
    made.log(stray())
    assert [words for _, _, words in made.core.strays({})] == [words_of("n1")]


def test_a_trys_name_under_another_key_reads_nothing_back() -> None:
    made = bench({"id": "a"}, {"id": "b"})
    invocation = made.declared("a")
    assert made.log(invocation.started.model_copy(update={"idempotency_key": key_of("b"), "node_id": "b"})) is None
    assert made.core.strays({}) == []
    reported = made.log(invocation.started)
    assert reported is not None
    assert reported.won


MINE = {"worker_id": "w-1", "incarnation": "i-1"}


def stray(invocation_id: str = "n1", token: int = 1, node: str = "a") -> ev.ToolInvocationStarted:
    """A `started` of this life that nobody here waits for."""
    return started(node, invocation_id, token=token).model_copy(update=MINE)


def forgetful(*, knows: bool = True) -> CoreBench:
    """A life that has declared n1 in a partition that it has lost and got back; or another life."""
    made = bench()
    if knows:
        made.unread.put(stray(), words_of("n1"))
    return made


def parked(invocation_id: str) -> ev.InvocationParked:
    return about(ev.InvocationParked, "a", invocation_id=invocation_id, reason="nobody knows")


def test_what_this_life_declared_and_nobody_awaits_is_told_once() -> None:
    for more in ((), (parked("n1"),)):
        made = forgetful()
        made.log(stray(), *more)
        assert [(one.invocation_id, words) for _, one, words in made.core.strays({})] == [
            (try_of("n1"), words_of("n1"))
        ]
        assert made.core.strays({}) == []


def test_no_stray_is_what_was_begun_or_is_another_lifes_or_can_act_no_more() -> None:
    reopened = about(ev.InvocationReopened, "a", invocation_id="n1", next_token=2, by="policy")
    made = forgetful()
    made.log(stray())
    assert made.core.strays({JOB: {try_of("n1")}}) == []
    assert _strays(forgetful(knows=False), stray()) == []
    for events in (
        (stray(), finished("a", "n1")),
        (stray(), reopened),
        (stray(), reopened, started("a", "n2", token=2)),
        (stray(node="none"),),
        (stray(), sealed()),
    ):
        assert _strays(forgetful(), *events) == []


def _strays(made: CoreBench, *events: ev.Event) -> list[Any]:
    made.log(*events)
    return made.core.strays({})
