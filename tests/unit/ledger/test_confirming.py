"""What the ledger asks before a job goes on, and what it makes of the answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from aetheris.ledger.core.confirmations import accept, hold, may_accept, nothing_changed, observe, resumed
from aetheris.ledger.core.confirmations import asked as asks
from aetheris.ledger.core.decisions import Confirm, Emit, Now
from aetheris.ledger.core.live_jobs import DecisionContext, LiveJob
from aetheris.ledger.core.settlement import JobKey
from aetheris.protocol.base.records import Record
from aetheris.protocol.fold.job_log import LoggedEvent
from aetheris.protocol.fold.rules import apply
from aetheris.protocol.fold.state import create_job
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import RegistryEntry, Signal
from aetheris.protocol.messages.event_values import Change, RejectReason
from aetheris.protocol.plan.graph import Confirmation, JobOptions
from aetheris.protocol.planning.confirmation import Tally, recorded_effects
from aetheris.runtime.process.policy_file import load
from tests.testkit.histories import JOB, TENANT, about, created, finished, graph, key_of, planned, started
from tests.unit.ledger.test_waits import LIMITS, START

NODES = (
    {"id": "a"},
    {"id": "b", "args": {"x": {"$ref": "a#"}}},
    {"id": "c"},
    {"id": "d", "args": {"x": {"$ref": "c#"}}},
)
ENTRY = RegistryEntry.model_validate(
    {"name": "act", "version": "1", "schema": {}, "schema_hash": "s", "effect_class": "opaque", "verifier": True}
)
TERMS = DecisionContext(load(None), LIMITS, lambda: "id", lambda: 1.0, registered=lambda _name, _version: ENTRY)


def job(mode: Confirmation | None = None, rules: Mapping[str, str | None] | None = None) -> LiveJob:
    """A job whose nodes in `rules` (a) have succeeded, each let run by a rule; "pay" names carol."""
    live = LiveJob(create_job(created(JobOptions(confirmation=mode)), 0))
    events: list[ev.Event] = [planned(graph(*NODES))]
    for node, rule in (rules or {"a": None}).items():
        if rule == "pay":
            word: dict[str, Any] = {"args_hash": "h", "tool_version": "1", "rule": rule, "approvers": ("carol",)}
            events.append(about(ev.PolicyAllowed, node, **word))
        events += [started(node, f"n-{node}").model_copy(update={"rule": rule}), finished(node, f"n-{node}")]
    for offset, event in enumerate(events, start=1):
        apply(live.state, event, offset)
    return live


def job_key(live: LiveJob, node: str = "b") -> JobKey:
    return JobKey(live.state, f"key-{node}", live.state.key(f"key-{node}", node))


def now(at_s: float) -> Now:
    return Now(at_s, START)


def answer(ask: str, reason: str | None, **place: int) -> Any:
    body = {"job_id": JOB, "node_id": "a", "idempotency_key": key_of("a"), "ask": ask, "resource": {}, "mode": "strict"}
    body |= {"place": 0, "of": 1} | place
    if reason is None:
        return ev.EffectConfirmed.model_validate(body)
    return ev.ConfirmationFailed.model_validate(body | {"reason": reason})


def asked(live: LiveJob, at_s: float) -> str:
    step = hold(live, job_key(live), ("b",), TERMS, now(at_s))
    assert step is not None
    (decision,) = step.decisions
    assert isinstance(decision, Confirm)
    return decision.message.ask


def test_a_job_that_never_waited_asks_nothing() -> None:
    assert hold(job(), job_key(job()), ("b",), TERMS, now(0)) is None


def test_only_what_a_node_builds_on_is_asked_about_and_once() -> None:
    live = job()
    resumed(live, 4, TERMS)
    assert hold(live, job_key(live, "c"), ("c",), TERMS, now(0)) is None
    ask = asked(live, 0)
    waits = hold(live, job_key(live), ("b",), TERMS, now(1))
    assert waits is not None
    assert (waits.decisions, waits.due_s) == ([], LIMITS.probe_wait_s)
    assert observe(live, answer(ask, None), TERMS, now(2))
    assert hold(live, job_key(live), ("b",), TERMS, now(2)) is None


def test_who_cannot_tell_is_asked_again_and_then_is_no_yes() -> None:
    live, at_s = job(), 0.0
    resumed(live, 4, TERMS)
    for _ in range(LIMITS.probe_tries):
        ask = asked(live, at_s)
        observe(live, answer(ask, "unknown"), TERMS, now(at_s))
        at_s += 1_000
    step = hold(live, job_key(live), ("b",), TERMS, now(at_s))
    assert step is not None
    (emit,) = step.decisions
    assert isinstance(emit, Emit)
    (reported,) = emit.events
    assert isinstance(reported.event, ev.InvocationRejected)
    assert reported.event.reason is RejectReason.CONFIRMATION


def test_an_answer_of_an_earlier_wait_counts_no_more() -> None:
    live = job()
    resumed(live, 4, TERMS)
    ask = asked(live, 0)
    resumed(live, 9, TERMS)
    assert not observe(live, answer(ask, None), TERMS, now(1))
    assert asked(live, 1) != ask


@pytest.mark.parametrize(("mode", "goes_on"), [("strict", False), ("warn", True), ("human_in_loop", False)])
def test_drift_is_met_by_the_jobs_option(mode: Confirmation, goes_on: bool) -> None:
    live = job(mode)
    resumed(live, 4, TERMS)
    observe(live, answer(asked(live, 0), "drift"), TERMS, now(1))
    assert (hold(live, job_key(live), ("b",), TERMS, now(1)) is None) is goes_on


def signalled(by: str, tenant: str = TENANT) -> Signal:
    settlement = {
        "job_id": JOB,
        "by": by,
        "tenant": tenant,
        "correlation_key": "confirm-4",
        "payload": None,
        "as_of": -1,
    }
    return Signal.model_validate(settlement)


def asks_human(live: LiveJob, context: DecisionContext, at_s: float) -> ev.JobWaiting:
    step = hold(live, job_key(live, "d"), ("b", "d"), context, now(at_s))
    assert step is not None
    (emit,) = step.decisions
    assert isinstance(emit, Emit)
    (reported,) = emit.events
    assert isinstance(reported.event, ev.JobWaiting)
    return reported.event


def test_what_could_not_be_confirmed_is_accepted_by_whom_the_calls_rule_names_and_nobody_else() -> None:
    live = job("human_in_loop", rules={"a": "pay"})
    resumed(live, 4, TERMS)
    observe(live, answer(asked(live, 0), "drift"), TERMS, now(1))
    wait = asks_human(live, TERMS, 1)
    assert (wait.rule, wait.approvers, wait.correlation_key) == ("pay", ("carol",), "confirm-4")
    apply(live.state, wait, 5)
    asks(live, wait)
    assert [may_accept(live.state, signalled(who)) for who in ("ann", "bob", "carol")] == [False, False, True]
    assert not may_accept(live.state, signalled("carol", "other"))
    accept(live)
    assert hold(live, job_key(live), ("b",), TERMS, now(2)) is None


def test_calls_of_two_rules_are_accepted_one_after_the_other() -> None:
    live = job("human_in_loop", rules={"a": "pay", "c": "rest"})
    resumed(live, 6, TERMS)
    assert live.resumed is not None
    live.resumed.failed, live.resumed.open = {key_of("a"), key_of("c")}, set()
    found: list[tuple[str | None, str | None]] = []
    for offset in (7, 9):
        wait = asks_human(live, TERMS, 1)
        apply(live.state, wait, offset)
        asks(live, wait)
        accept(live)
        named = {"wait_type": wait.wait_type, "correlation_key": wait.correlation_key, "by": "carol"}
        apply(live.state, ev.WaitCompleted.model_validate({"job_id": JOB, **named}), offset + 1)
        found.append((wait.rule, wait.correlation_key))
    assert sorted(rule or "" for rule, _ in found) == ["pay", "rest"]
    assert [key for _, key in found] == ["confirm-6", "confirm-6-2"]
    assert hold(live, job_key(live, "d"), ("b", "d"), TERMS, now(2)) is None


def test_a_call_that_recorded_no_change_keeps_nobody() -> None:
    live = job()
    resumed(live, 4, TERMS)
    asked(live, 0)
    nothing_changed(live, key_of("a"))
    assert hold(live, job_key(live), ("b",), TERMS, now(1)) is None


def test_every_resource_must_be_as_it_was_and_a_repeat_is_no_second_answer() -> None:
    tally = Tally()
    assert tally.take(answer("q", None, place=0, of=2)) is None
    assert tally.take(answer("q", None, place=0, of=2)) is None
    assert tally.take(answer("q", "drift", place=1, of=2)) == "drift"


def test_the_first_change_after_a_settlement_is_the_calls_own() -> None:
    def change(name: str) -> ev.StateChanged:
        return ev.StateChanged(
            job_id=JOB, node_id="a", changes=(Change(resource_type="t", resource_id=name, operation="create"),)
        )

    history = (created(), planned(graph(*NODES)), change("early"), started("a", "n1"), finished("a", "n1"))
    history += (change("own"), change("void"))
    record = Record("t", 0, 0, 0, JOB.encode(), (), b"")
    reported = [LoggedEvent(place, record.replaced(offset=place), event) for place, event in enumerate(history)]
    _, (effect,) = recorded_effects(reported)
    assert [one.resource_id for one in effect.changes] == ["own"]
