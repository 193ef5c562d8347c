"""A job that is taken up again after ledger and executor were gone: what it did is compared before it is built on."""

from typing import Any

import pytest

from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry
from aetheris.tool_executor.core.grants import ReceivedGrant
from aetheris.tool_executor.core.partition import Drop, Partition
from aetheris.tool_executor.core.tries import DeclaredInvocation, Worker
from aetheris.views.standing import job_status, job_view
from tests.testkit.histories import JOB, finished, graph, key_of, started
from tests.testkit.ledgers import BY_LOCK, TTL_S, Ledger, Surroundings
from tests.testkit.tries import secret_of

PLAN = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}, act={"effect_class": "idempotent"})
ENTRY = {"name": "act", "version": "1", "schema": {}, "schema_hash": "s", "effect_class": "idempotent"}
GONE = ("w", "i1")


def world(*, verifier: bool = True) -> Surroundings:
    """Node a has taken effect, by the worker's life i1; b builds on it."""
    tools = {"act": RegistryEntry.model_validate(ENTRY | {"verifier": verifier})}
    made = Surroundings(PLAN, tools=tools)
    for event in (started("a", "n1"), finished("a", "n1")):
        made.log.append(event)
        made.ids.append("")
    return made


def end(ledger: Ledger) -> None:
    ledger.surroundings.ended[GONE] = BY_LOCK
    ledger.core.worker_ended(GONE)
    ledger.settle()


def confirm(ledger: Ledger) -> None:
    body = {"job_id": JOB, "node_id": "a", "idempotency_key": key_of("a"), "ask": ledger.asks[-1].ask, "mode": "strict"}
    answer = ev.EffectConfirmed.model_validate(body | {"resource": {}, "place": 0, "of": 1})
    ledger.core.confirm(answer, ledger.core.folded, ledger.surroundings.now())
    ledger.settle()


def test_a_ledger_that_starts_behind_the_executor_asks_before_it_grants() -> None:
    there = world()
    there.ended[GONE] = BY_LOCK
    ledger = there.ledger()
    ledger.request("b", "c")
    assert ([ask.idempotency_key for ask in ledger.asks], ledger.grants) == ([key_of("a")], [])
    confirm(ledger)
    assert [grant.incarnation for grant in ledger.grants] == [None]


def test_a_ledger_that_starts_before_the_executor_lets_only_the_one_from_before_go_on() -> None:
    ledger = world().ledger()
    ledger.request("b")
    assert ([grant.incarnation for grant in ledger.grants], ledger.asks) == (["i1"], [])
    end(ledger)
    assert ([ask.idempotency_key for ask in ledger.asks], len(ledger.grants)) == ([key_of("a")], 1)
    confirm(ledger)
    assert [grant.incarnation for grant in ledger.grants] == ["i1", None]


def test_an_executor_that_takes_nothing_up_is_gone() -> None:
    ledger = world().ledger()
    ledger.request("b")
    ledger.sleep(TTL_S)
    assert (len(ledger.grants), len(ledger.asks)) == (1, 1)


def test_another_executor_in_its_place_shows_that_it_is_gone() -> None:
    ledger = world().ledger()
    ledger.add(started("c", "n2", incarnation="i2"))
    ledger.request("b")
    assert (ledger.grants, len(ledger.asks)) == ([], 1)


def test_a_mere_restart_of_the_ledger_asks_nothing() -> None:
    ledger = world().ledger()
    ledger.request("c")
    ledger.add(started("c", "n2"), finished("c", "n2"))
    end(ledger)
    ledger.request("b")
    assert (len(ledger.grants), ledger.asks) == (2, [])


def test_an_executor_that_ends_beside_a_ledger_that_lives_costs_no_question() -> None:
    there = world()
    history, there.log, there.ids = there.log[2:], there.log[:2], there.ids[:2]
    ledger = there.ledger()
    ledger.add(*history)
    ledger.request("b")
    assert [grant.incarnation for grant in ledger.grants] == ["i1"]
    end(ledger)
    assert ([grant.incarnation for grant in ledger.grants], ledger.asks) == (["i1", None], [])


def test_a_second_restart_forgets_no_question() -> None:
    there = world()
    there.ended[GONE] = BY_LOCK
    there.ledger()
    there.log += [started("c", "n2", incarnation="i2")]
    there.ids += [""]
    ledger = there.ledger()
    ledger.request("b")
    assert (ledger.grants, len(ledger.asks)) == ([], 1)


def test_a_job_without_a_verifier_is_not_looked_at() -> None:
    ledger = world(verifier=False).ledger()
    ledger.request("b")
    end(ledger)
    assert ([grant.incarnation for grant in ledger.grants], ledger.asks) == ([None], [])


@pytest.mark.parametrize(("incarnation", "takes"), [("i1", True), ("i2", False)])
def test_a_grant_from_before_is_taken_by_the_life_it_was_given_to(incarnation: str, takes: bool) -> None:
    there = world()
    ledger = there.ledger()
    ledger.request("b")
    kind: Any = started("b", "n3").kind
    executor = Partition(Worker("w", incarnation), lambda _call: None, lambda _call: kind)
    for offset, event in enumerate(there.log):
        executor.evolve(event, offset)
    verdict = executor.judge(ReceivedGrant(ledger.grants[0], "cause", 0), secret_of("n3"))
    assert isinstance(verdict, DeclaredInvocation if takes else Drop)


def test_a_question_that_nobody_answers_is_in_the_log_and_the_view_names_it_until_it_is_answered() -> None:
    there = world()
    there.ended[GONE] = BY_LOCK
    ledger = there.ledger()
    ledger.request("b")
    first = there.now().wall.isoformat()
    assert "job_waiting" not in ledger.written(), "who answers in time is not waited for"
    ledger.sleep(4 * there.limits.probe_wait_s)
    assert ledger.written().count("job_waiting") == 1
    assert job_status(ledger.job) == "waiting"
    assert f"b waits for a verifier: whether what a did still stands was asked first at {first}" in why(ledger)
    restarted = there.ledger()
    restarted.request("b")
    restarted.sleep(4 * there.limits.probe_wait_s)
    assert restarted.written().count("job_waiting") == 1
    assert first in why(restarted), "since when, not since the restart"
    assert restarted.grants == []
    confirm(restarted)
    assert restarted.written()[-1] == "wait_completed"
    assert job_status(restarted.job) == "running"
    assert len(restarted.asks) == len({ask.ask for ask in restarted.asks}), "its end asks nothing anew"
    assert [grant.nodes for grant in restarted.grants] == [("b",)]


def why(ledger: Ledger) -> str:
    return str(job_view(ledger.job, "")["why"])
