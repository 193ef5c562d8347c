"""Workflows: what a body may start by itself, and what the ledger does for its calls."""

from typing import Any

import pytest

from aetheris.protocol.base.child_ids import NOTHING_RECORDED
from aetheris.protocol.base.ids import execution_id
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.fold.state import KeyState, KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import Signal
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.policy import parse
from tests.testkit.body_histories import (
    GRAPH,
    PARENT,
    asked,
    body,
    call,
    ended,
    named,
    over,
    pair,
    reopened,
    stopping,
)
from tests.testkit.histories import JOB, TENANT, about, key_of
from tests.testkit.ledgers import ALLOW_ALL, Ledger, Surroundings, limits
from tests.testkit.principals import said_by
from tests.testkit.tries import doubt_word

GRAPH_WITHOUT_Q = GRAPH | {"nodes": GRAPH["nodes"][:1]}


def without_tool(event: ev.CallPlanned) -> ev.CallPlanned:
    """Of a kind that names none."""
    return event.model_copy(update={"entry": {name: one for name, one in event.entry.items() if name != "tool"}})


def signalled(correlation_key: str, payload: Any, as_of: int) -> Signal:
    fields = {"job_id": JOB, "tenant": TENANT, "correlation_key": correlation_key, "payload": payload, "as_of": as_of}
    return Signal.model_validate(fields | said_by("ann"))


def doubted(name: str, error_class: str, *evidence: Any) -> Any:
    said: dict[str, Any] = {"invocation_id": name, "error_class": error_class, "evidence": evidence}
    return about(ev.InvocationInDoubt, PARENT, tool="flow", **said, word=doubt_word(name, returned=False))


def yes(args: dict[str, Any]) -> dict[str, Any]:
    said = {"decision": Decision.APPROVE, "approver": "bob", "rule": "ask"}
    return said | {"tool_version": "1", "args_hash": args_hash(args)}


def done(number: int) -> list[str]:
    return [named({"n": before}) for before in range(2, number)]


def test_a_grant_names_what_its_body_may_start_and_leaves_out_what_can_not_be_undone() -> None:
    ledger = Surroundings(GRAPH_WITHOUT_Q, parse(ALLOW_ALL)).ledger()
    ledger.request(PARENT)
    (grant,) = ledger.grants
    assert grant.nodes == (PARENT,)
    licence = grant.licence or {}
    assert {"act", "read", "llm", "time", "random"} <= set(licence)
    assert set(licence.values()) == {"all"}
    assert "pay" not in licence


def test_what_the_policy_looks_at_or_limits_or_refuses_is_not_in_it() -> None:
    rules = """
[[rules]]
name = "small"
tools = ["act"]
when = "args.n < 5"
effect = "allow"

[[rules]]
name = "few"
tools = ["read"]
effect = "allow"
rate = {calls = 3, per_s = 1.0}

[[rules]]
name = "no models"
tools = ["llm"]
effect = "deny"

"""
    ledger = Surroundings(GRAPH_WITHOUT_Q, parse(rules + ALLOW_ALL)).ledger()
    ledger.request(PARENT)
    assert not {"act", "read", "pay", "llm"} & set(ledger.grants[0].licence or {})


def test_a_plain_node_has_none() -> None:
    ledger = Surroundings({**GRAPH, "nodes": [{"id": "a", "kind": "tool", "tool": "act"}]}).ledger()
    ledger.request("a")
    assert ledger.grants[0].licence is None


def workflow(policy: str = ALLOW_ALL, **options: Any) -> Ledger:
    """A ledger of a job whose body, b1, runs."""
    ledger = Surroundings(GRAPH_WITHOUT_Q, parse(policy), **options).ledger()
    ledger.request(PARENT)
    ledger.add(body("b1"))
    ledger.grants.clear()
    return ledger


def state_of(ledger: Ledger) -> KeyState:
    return ledger.job.keys[key_of(PARENT, tool="flow")]


def key(ledger: Ledger, node: str) -> str:
    entry = ledger.job.entry(node)
    assert entry is not None
    assert entry.call is not None
    return entry.call.key


def granted(ledger: Ledger) -> list[str]:
    return [grant.nodes[0] for grant in ledger.grants]


def test_what_a_body_plans_is_a_request_and_is_granted_without_any_other() -> None:
    ledger = workflow()
    ledger.says(call("b1", {"n": 1}))
    (grant,) = ledger.grants
    assert (grant.nodes, grant.idempotency_key) == ((named({"n": 1}),), key(ledger, named({"n": 1})))
    assert ledger.core.open_request() is None


def test_what_starts_in_the_same_round_needs_no_grant() -> None:
    ledger = workflow()
    ledger.says(*pair({"n": 1}))
    assert ledger.grants == []


def test_a_restart_asks_again_for_what_was_planned_and_not_begun() -> None:
    ledger = workflow()
    ledger.says(call("b1", {"n": 1}))
    assert granted(ledger.surroundings.ledger()) == [named({"n": 1})]


def test_the_policy_is_asked_and_a_denied_call_is_refused_and_nothing_else() -> None:
    ledger = workflow('[[rules]]\nname = "small"\ntools = ["act"]\nwhen = "args.n > 5"\neffect = "deny"\n' + ALLOW_ALL)
    ledger.says(call("b1", {"n": 9}), call("b1", {"n": 1}))
    denied = ledger.job.keys[key(ledger, named({"n": 9}))]
    assert (denied.outcome, denied.reason, denied.detail) == (Settled.REJECTED, "policy", "small")
    assert granted(ledger) == [named({"n": 1})]
    assert ledger.job.keys[key_of(PARENT, tool="flow")].status is KeyStatus.STARTED


def test_an_irreversible_call_is_approved_by_a_human_like_any_other() -> None:
    ledger = workflow('[[rules]]\nname = "pay"\ntools = ["pay"]\neffect = "approval"\n' + ALLOW_ALL)
    ledger.says(call("b1", {"n": 1}, tool="pay"))
    node = named({"n": 1}, "pay")
    assert (ledger.grants, ledger.job.keys[key(ledger, node)].is_asking) == ([], True)
    ledger.add(about(ev.ApprovalDecided, node, args={"n": 1}, tool="pay", **yes({"n": 1})))
    assert granted(ledger) == [node]


def test_the_same_irreversible_call_again_asks_a_human_unless_the_rule_allows_repeats() -> None:
    for more, asks in (("", True), ('repeats = "allow"\n', False)):
        ledger = workflow('[[rules]]\nname = "pay"\ntools = ["pay"]\neffect = "allow"\n' + more + ALLOW_ALL)
        ledger.says(call("b1", {"n": 1}, tool="pay", occurrence=2))
        node = named({"n": 1}, "pay", 2)
        assert ledger.job.keys[key(ledger, node)].is_asking is asks
        assert granted(ledger) == ([] if asks else [node])


def test_a_timer_and_a_signal_are_waited_for_in_the_log() -> None:
    ledger = workflow()
    timer = call("b1", node="p.sleep", tool="timer", kind="timer", wait={"for_s": 60})
    signal = call("b1", node="p.paid", tool="wait", kind="wait", wait={"key": "paid"})
    ledger.says(without_tool(timer), without_tool(signal))
    assert ledger.job.keys[key(ledger, "p.sleep")].is_waiting
    ledger.sleep(61)
    assert ledger.job.keys[key(ledger, "p.sleep")].outcome is Settled.SUCCESS
    ledger.core.hear(signalled("paid", {"amount": 5}, ledger.job.last_offset), "cmd-9", 9)
    ledger.settle()
    assert ledger.job.keys[key(ledger, "p.paid")].result == {"amount": 5}


def test_what_an_earlier_body_planned_is_not_granted_before_the_next_one_plans_it() -> None:
    ledger = workflow()
    ledger.says(call("b1", {"n": 1}), reopened("b1"), body("b2", token=2))
    assert named({"n": 1}) not in granted(ledger)
    ledger.sleep(100)
    assert named({"n": 1}) not in granted(ledger)
    ledger.says(call("b2", {"n": 1}))
    assert granted(ledger)[-1] == named({"n": 1})


def test_a_body_whose_worker_is_gone_runs_again_at_once_and_parks_when_it_gets_nowhere() -> None:
    ledger = workflow(limits=limits(max_tries=3))
    for number in (2, 3):
        ledger.lease_lapses()
        assert state_of(ledger).status is KeyStatus.REOPENED
        ledger.add(body(f"b{number}", token=number))
    ledger.lease_lapses()
    assert state_of(ledger).status is KeyStatus.PARKED
    assert "3 times" in (state_of(ledger).parked_because or "")


def test_what_a_body_left_in_the_effect_store_ends_nothing_and_it_runs_again() -> None:
    """It was killed between its result and the record of it, which alone says that it had asked for all."""
    ledger = workflow()
    done, key = over("b1"), key_of(PARENT, tool="flow")
    started = state_of(ledger).started
    assert started is not None
    named = {"job_id": JOB, "node_id": PARENT, "command_id": PARENT, "idempotency_key": key, "kind": started.kind}
    hashes = {"input_hash": started.args_hash, "output_hash": done.output_hash}
    committed = ev.CommandCommitted.model_validate(named | hashes)
    stored = f'{{"finished":{done.model_dump_json()},"committed":{committed.model_dump_json()}}}'
    ledger.surroundings.effects[key] = {done.invocation_id: stored.encode()}
    ledger.lease_lapses()
    assert state_of(ledger).status is KeyStatus.REOPENED
    assert (granted(ledger), "tool_invocation_finished" in ledger.written()) == ([PARENT], False)


def test_a_call_that_ends_between_takeovers_is_progress() -> None:
    ledger = workflow(limits=limits(max_tries=2))
    for number in range(2, 8):
        ledger.says(*pair({"n": number}, f"b{number - 1}", f"t{number}", said=asked(*done(number))))
        ledger.add(ended(f"t{number}", {"n": number}))
        ledger.lease_lapses()
        assert state_of(ledger).status is KeyStatus.REOPENED
        ledger.add(body(f"b{number}", token=number))


def test_a_human_s_retry_of_a_parked_body_is_counted_anew() -> None:
    ledger = workflow(limits=limits(max_tries=2))
    ledger.lease_lapses()
    ledger.add(body("b2", token=2))
    ledger.lease_lapses()
    assert state_of(ledger).status is KeyStatus.PARKED
    ledger.resolve("retry", execution_id=execution_id(JOB, PARENT, key_of(PARENT, tool="flow")))
    assert granted(ledger)[-1] == PARENT
    ledger.add(body("b3", token=3))
    ledger.lease_lapses()
    assert state_of(ledger).status is KeyStatus.REOPENED


def test_a_body_that_diverges_parks_with_what_it_says() -> None:
    ledger = workflow()
    told = {"unasked": ["p.ship"], "held": ["mail.1"]}
    ledger.add(doubted("b1", "diverged", told))
    parked = state_of(ledger).parked
    assert parked is not None
    assert told in parked.evidence


def test_a_body_that_sleeps_is_granted_when_one_of_what_it_waits_for_settles() -> None:
    ledger = workflow('[[rules]]\nname = "ask"\ntools = ["act"]\neffect = "approval"\n' + ALLOW_ALL)
    ledger.says(call("b1", {"n": 1}), call("b1", {"n": 2}))
    one, two = named({"n": 1}), named({"n": 2})
    ledger.add(over("b1", "retryable_failure", until=[one, two]))
    ledger.sleep(1000)
    assert ledger.grants == []
    ledger.add(about(ev.ApprovalDecided, two, args={"n": 2}, **(yes({"n": 2}) | {"decision": Decision.REJECT})))
    assert granted(ledger) == [PARENT]
    assert granted(ledger.surroundings.ledger()) == [PARENT]


@pytest.mark.parametrize("until", [[], ["p.unknown"]])
def test_a_body_that_sleeps_for_nothing_or_for_what_is_not_planned_is_granted_now(until: list[str]) -> None:
    ledger = workflow()
    ledger.add(over("b1", "retryable_failure", until=until))
    assert granted(ledger) == [PARENT]


def test_a_body_that_sleeps_for_what_has_settled_before_is_granted_now() -> None:
    ledger = workflow()
    ledger.says(*pair({"n": 1}))
    ledger.add(ended("t1", {"n": 1}))
    ledger.add(over("b1", "retryable_failure", until=[named({"n": 1})]))
    assert granted(ledger) == [PARENT]


def test_sleep_is_no_attempt_however_often() -> None:
    ledger = workflow(limits=limits(max_tries=2))
    for number in range(1, 30):
        ledger.add(over(f"b{number}", "retryable_failure", until=[]))
        assert state_of(ledger).status is KeyStatus.REOPENED
        ledger.add(body(f"b{number + 1}", token=number + 1, attempt=number))
        assert state_of(ledger).status is KeyStatus.STARTED


def test_what_an_ended_body_left_unbegun_is_refused_also_behind_a_restart() -> None:
    for restarts in (False, True):
        ledger = workflow('[[rules]]\nname = "ask"\ntools = ["act"]\neffect = "approval"\n' + ALLOW_ALL)
        ledger.says(call("b1", {"n": 1}), without_tool(call("b1", node="p.s", kind="timer", wait={"for_s": 60})))
        end = over("b1", said=NOTHING_RECORDED)
        if restarts:
            ledger.surroundings.log.append(end)
            ledger.surroundings.ids.append("")
            ledger = ledger.surroundings.ledger()
        else:
            ledger.add(end)
        for node in (named({"n": 1}), "p.s"):
            left = ledger.job.keys[key(ledger, node)]
            assert (left.outcome, left.reason) == (Settled.REJECTED, "cancelled")


def test_a_stop_ends_the_body_once_its_calls_have_ended() -> None:
    ledger = workflow()
    ledger.says(*pair({"n": 1}))
    ledger.surroundings.held.add(key(ledger, named({"n": 1})))
    ledger.add(stopping())
    ledger.add(over("b1", "retryable_failure", until=[]))
    ledger.sleep(100)
    assert state_of(ledger).status is KeyStatus.REOPENED
    ledger.add(ended("t1", {"n": 1}))
    assert state_of(ledger).outcome is Settled.FAILED
    assert ledger.grants == []


def test_a_body_that_has_stopped_runs_again_at_once_and_is_slowed_down_where_it_gets_nowhere() -> None:
    ledger = workflow(limits=limits(max_tries=5))
    for number in range(1, 5):
        ledger.add(over(f"b{number}", "retryable_failure"))
        assert granted(ledger).count(PARENT) == number
        ledger.add(body(f"b{number + 1}", token=number + 1, attempt=number))
    ledger.add(over("b5", "retryable_failure"))
    assert granted(ledger).count(PARENT) == 4
    assert state_of(ledger).retry_due is not None
    ledger.sleep(100)
    assert granted(ledger).count(PARENT) > 4
    assert state_of(ledger).status is KeyStatus.REOPENED


def test_code_is_accepted_by_a_person_and_what_it_does_not_ask_for_is_waived_for_it_alone() -> None:
    ledger = workflow()
    ledger.says(*pair({"n": 1}))
    ledger.add(ended("t1", {"n": 1}), doubted("b1", "diverged", {"unasked": [named({"n": 1})], "held": []}))
    execution = execution_id(JOB, PARENT, key_of(PARENT, tool="flow"))
    ledger.resolve("retry", execution_id=execution, accept_code="c" * 64)
    (accepted,) = [event for event in ledger.surroundings.log if isinstance(event, ev.WorkflowAccepted)]
    assert (accepted.code_hash, accepted.waives, accepted.by) == ("c" * 64, (named({"n": 1}),), "bob")
    assert granted(ledger)[-1] == PARENT
    bodies = ledger.job.bodies
    assert bodies is not None
    for token, code, expected in ((2, "d" * 64, 1), (3, "c" * 64, 0)):
        ledger.add(body(f"b{token}", token=token, code=code))
        assert (bodies.of[PARENT].expected > 0) is bool(expected)
        ledger.lease_lapses()


def test_a_signal_that_came_before_its_wait_is_kept_for_it_and_no_more_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aetheris.protocol.fold.bodies.MAX_SIGNALS", 2)
    ledger = workflow()
    for number, name in enumerate(("paid", "sent", "much")):
        ledger.core.hear(signalled(name, number, ledger.job.last_offset), f"cmd-{number}", number)
        ledger.settle()
    assert list(ledger.job.signals) == ["paid", "sent"]
    ledger.says(without_tool(call("b1", node="p.paid", kind="wait", wait={"key": "paid"})))
    waited = ledger.job.keys[key(ledger, "p.paid")]
    assert (waited.outcome, waited.result) == (Settled.SUCCESS, 0)


def test_a_signal_that_no_code_can_ask_for_any_more_is_not_kept() -> None:
    ledger = workflow()
    ledger.add(over("b1", said=NOTHING_RECORDED))
    ledger.core.hear(signalled("paid", 1, ledger.job.last_offset), "cmd-1", 1)
    ledger.settle()
    assert ledger.job.signals == {}
