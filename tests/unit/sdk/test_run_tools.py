"""What every adapter stands on, before a stand-in for the gateway: called from threads and loops of others."""

import asyncio
import json
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aetheris.sdk.adapters import RunSuspended, RunTools
from aetheris.sdk.call_port import NoSuchTool
from tests.testkit.external_server import until
from tests.testkit.played_gateway import PlayedGateway, running_played_gateway

REFUND = {"order_id": "o", "amount": 5}


@pytest.fixture
def played() -> Generator[PlayedGateway]:
    with running_played_gateway() as gateway:
        gateway.released.set()
        yield gateway


def run_of(played: PlayedGateway, *tools: str, **how: Any) -> RunTools:
    return RunTools(tools or ("*",), run_id="r", url=played.url, token="t", **how)  # noqa: S106


def test_equal_calls_from_any_thread_and_loop_are_one(played: PlayedGateway) -> None:
    with run_of(played) as run:
        assert list(run.shown) == ["refund", "mail_send", "look", "odd"]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: run.call("refund", REFUND), range(8)))
            loops = list(threads.map(lambda _: asyncio.run(run.acall("refund", json.dumps(REFUND))), range(8)))
        assert {(one.text, one.failed) for one in (*answers, *loops)} == {('{"refunded": 5}', False)}
    assert len(played.effects) == 1


@pytest.mark.parametrize("args", ["{", "[1]", '"x"', "1", "[" * 200_000, '{"amount": NaN}', '{"amount": 1e400}', 7])
def test_what_is_no_object_of_json_is_refused_with_words(played: PlayedGateway, args: Any) -> None:
    with run_of(played) as run:
        answer = run.call("refund", args)
        assert (answer.failed, "nothing was called" in answer.text) == (True, True)
        assert not run.call("refund", REFUND).failed, "the run goes on"


def test_what_is_no_json_is_refused_also_where_it_makes_no_other_call(played: PlayedGateway) -> None:
    with run_of(played) as run:
        answer = run.call("mail_send", '{"amount": 5, "date": NaN}')
        assert (answer.failed, "nothing was called" in answer.text) == (True, True)
    assert played.effects == []


def test_a_failure_says_what_is_known(played: PlayedGateway) -> None:
    played.fails = {"reason": "no try is left", "effect": "possible", "via": "ledger"}
    with run_of(played) as run:
        answers = [run.call("refund", REFUND) for _ in range(3)]
    assert all(one.failed and "A human decides" in one.text for one in answers)
    assert len(played.effects) == 1


def test_a_repeat_on_purpose_names_its_call(played: PlayedGateway) -> None:
    with run_of(played, repeats=["refund"]) as run:
        run.call("refund", REFUND)
        again = json.loads(run.call("refund", REFUND).text)
        assert len(played.effects) == 1
        run.call("refund", {**REFUND, "repeat_of": again["call_id"]})
    assert len(played.effects) == 2


def test_a_run_of_which_something_is_not_known_calls_nothing_further_and_says_so_at_its_end(
    played: PlayedGateway,
) -> None:
    def given_up(order: str, then: BaseException | None) -> None:
        with run_of(played, patience_s=0.2) as run:
            with pytest.raises(RunSuspended):
                run.call("refund", REFUND | {"order_id": order})
            with pytest.raises(RunSuspended):  # a framework that has told its model of it, and goes on
                run.call("mail_send", {"amount": 1})
            if then is not None:
                raise then

    played.released.clear()
    with pytest.raises(RunSuspended, match="run it again") as left:
        given_up("o", None)
    assert (len(played.effects), left.value.job_id in played.jobs) == (1, True)
    with pytest.raises(RunSuspended) as wrapped:
        given_up("p", RuntimeError("a framework's own"))
    assert isinstance(wrapped.value.__cause__, RuntimeError)
    with pytest.raises(KeyboardInterrupt):
        given_up("q", KeyboardInterrupt())
    played.released.set()
    with run_of(played) as run:
        assert run.call("refund", REFUND).text == '{"refunded": 5}'
    assert len(played.effects) == 3


async def test_a_call_that_its_framework_gave_up_is_found_again(played: PlayedGateway) -> None:
    played.released.clear()
    async with run_of(played) as run:
        given_up = asyncio.create_task(run.acall("refund", REFUND))
        await asyncio.to_thread(until, lambda: bool(played.effects), 30)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        played.released.set()
        assert not (await run.acall("refund", REFUND)).failed
    assert len(played.effects) == 1


def test_a_gateway_that_says_no_suspends_the_run(played: PlayedGateway) -> None:
    run = run_of(played).__enter__()
    played.fails_with = (503, "unavailable")
    with pytest.raises(RunSuspended):
        run.call("refund", REFUND)
    with pytest.raises(RunSuspended, match="the gateway says unavailable") as left:
        run.__exit__(None, None, None)
    assert (left.value.job_id, played.effects) == (None, [])


def test_what_cannot_be_a_run_is_refused_before_anything_is_called(played: PlayedGateway) -> None:
    with pytest.raises(ValueError, match="run_id is empty"):
        RunTools(["*"], run_id="", url=played.url, token="t")  # noqa: S106
    with pytest.raises(NoSuchTool, match="did you mean refund"):
        run_of(played, "refnud").__enter__()
    with pytest.raises(RuntimeError, match="outside of its run"):
        run_of(played).call("refund", REFUND)
    with run_of(played) as run:
        with pytest.raises(RuntimeError, match="one run at a time"):
            run.__enter__()
        with pytest.raises(KeyError):
            run.call("nothing", {})
    assert "aetheris-calls" not in {one.name for one in threading.enumerate()}
    assert played.effects == []
