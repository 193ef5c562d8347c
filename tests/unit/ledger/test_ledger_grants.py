"""The ledger grants: from the fold, behind the policy, and again where nobody takes a grant up."""

from typing import Any

import pytest

from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.event_values import Decision, RejectReason
from aetheris.protocol.planning.policy import Policy, PolicyEffect, Rule, parse
from tests.testkit.histories import JOB, finished, graph, key_of, started
from tests.testkit.ledgers import ALLOW_ALL, TTL_S, Surroundings, limits, one


def test_a_request_becomes_a_grant_from_the_fold() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.request("a", offset=3)
    (grant,) = ledger.grants
    assert (grant.idempotency_key, grant.token, grant.birth, grant.nodes) == (key_of("a"), 1, 0, ("a",))
    assert grant.as_of == 1
    assert ledger.core.open_request() == 3
    ledger.add(started("a", "n1"))
    assert ledger.core.open_request() is None


def test_a_request_is_held_until_the_fold_has_come_as_far_as_its_writer() -> None:
    surroundings = Surroundings(one("idempotent"))
    late = surroundings.log.pop()
    ledger = surroundings.ledger()
    ledger.request("a", offset=3, as_of=1)
    assert ledger.grants == []
    assert ledger.core.waits_for_fold
    ledger.add(late)
    assert len(ledger.grants) == 1


@pytest.mark.parametrize("wrong", [{"birth": 1}, {"revision": 1}, {"plan_hash": "other"}, {"job_id": "job-2"}])
def test_what_does_not_match_the_fold_is_dropped(wrong: dict[str, Any]) -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.request("a", offset=3, **wrong)
    assert ledger.grants == []
    assert ledger.core.open_request() is None


def test_a_settled_or_running_key_needs_no_grant() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.add(started("a", "n1"))
    ledger.request("a")
    ledger.add(finished("a", "n1"))
    ledger.request("a")
    assert ledger.grants == []
    assert ledger.core.open_request() is None


def test_a_grant_that_nobody_takes_up_is_given_again_ever_more_rarely() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.request("a")
    ledger.sleep(TTL_S)
    assert len(ledger.grants) == 2
    ledger.sleep(2 * TTL_S)
    assert len(ledger.grants) == 3
    assert {grant.token for grant in ledger.grants} == {1}
    assert len({grant.lease_id for grant in ledger.grants}) == 1


def test_a_restart_reads_the_open_request_again_and_grants() -> None:
    surroundings = Surroundings(one("idempotent"))
    surroundings.ledger().request("a", offset=3)
    again = surroundings.ledger()
    again.request("a", offset=3)
    assert len(again.grants) == 1


def test_a_stopping_job_gets_no_grant_and_its_unstarted_keys_stay_as_they_are() -> None:
    ledger = Surroundings(one("idempotent")).ledger()
    ledger.request("a", offset=3)
    ledger.add(ev.JobStopping(job_id=JOB, by="ann", reason="enough", up_to_revision=0))
    ledger.sleep(100)
    assert len(ledger.grants) == 1
    assert ledger.core.open_request() is None
    assert ledger.written() == []


def test_a_run_is_cut_before_the_first_node_that_must_be_judged_by_itself() -> None:
    plan = graph(
        {"id": "a"},
        {"id": "b", "depends_on": ["a"]},
        {"id": "c", "depends_on": ["b"], "tool": "pay"},
        act={"effect_class": "pure"},
        pay={"irreversible": True},
    )
    ledger = Surroundings(plan).ledger()
    ledger.request("a", "b", "c")
    assert ledger.grants[0].nodes == ("a", "b")


def test_a_grant_names_the_rule_of_each_of_its_nodes() -> None:
    plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "tool": "sms"}, act={}, sms={})
    rules = [Rule(name=f"{tool}-goes", tools=(tool,), effect=PolicyEffect.ALLOW) for tool in ("act", "sms")]
    ledger = Surroundings(plan, Policy(rules)).ledger()
    ledger.request("a", "b")
    assert (ledger.grants[0].nodes, ledger.grants[0].rules) == (("a", "b"), ("act-goes", "sms-goes"))
    first = started("a", "n1").model_copy(update={"rule": "act-goes"})
    ledger.add(first, finished("a", "n1", "retryable_failure"))
    ledger.sleep(100)
    assert (ledger.grants[-1].token, ledger.grants[-1].rules) == (2, ("act-goes",))


def test_a_run_is_cut_before_what_the_policy_denies_and_can_be_switched_off() -> None:
    plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "tool": "sms"}, act={}, sms={})
    policy = parse('[[rules]]\nname = "quiet"\ntools = ["sms"]\neffect = "deny"\n' + ALLOW_ALL)
    ledger = Surroundings(plan, policy).ledger()
    ledger.request("a", "b")
    assert ledger.grants[0].nodes == ("a",)
    alone = Surroundings(one("pure"), limits=limits(runs=False)).ledger()
    alone.request("a", "b")
    assert alone.grants[0].nodes == ("a",)


def test_a_denied_call_is_rejected_with_the_rule() -> None:
    policy = parse('[[rules]]\nname = "never"\ntools = ["*"]\neffect = "deny"')
    ledger = Surroundings(one("pure"), policy).ledger()
    ledger.request("a")
    assert ledger.grants == []
    rejected = ledger.surroundings.log[-1]
    assert isinstance(rejected, ev.InvocationRejected)
    assert (rejected.reason, rejected.detail) == (RejectReason.POLICY, "never")
    assert ledger.state().outcome is Settled.REJECTED
    assert ledger.core.open_request() is None


def test_an_irreversible_call_is_granted_only_behind_the_recorded_word_of_the_policy() -> None:
    ledger = Surroundings(graph({"id": "a", "irreversible": True}), parse(ALLOW_ALL)).ledger()
    ledger.request("a")
    assert ledger.written() == ["policy_allowed"]
    allowed_at = len(ledger.surroundings.log) - 1
    (grant,) = ledger.grants
    assert grant.as_of >= allowed_at
    ledger.add(started("a", "n1"))
    assert ledger.state().status is KeyStatus.STARTED


@pytest.mark.parametrize(
    ("rules", "recorded"),
    [
        (ALLOW_ALL, []),
        (f'[[rules]]\nname = "few"\ntools = ["*"]\nwhen = "node.id == \'a\'"\neffect = "allow"\n{ALLOW_ALL}', ["few"]),
        (f'[[rules]]\nname = "never"\ntools = ["*"]\nwhen = "node.id == \'b\'"\neffect = "deny"\n{ALLOW_ALL}', ["all"]),
    ],
)
def test_what_a_rule_has_looked_at_is_recorded_with_the_rule_that_decides(rules: str, recorded: list[str]) -> None:
    ledger = Surroundings(graph({"id": "a"}), parse(rules)).ledger()
    ledger.request("a")
    words = [event for event in ledger.surroundings.log if isinstance(event, ev.PolicyAllowed)]
    assert [word.rule for word in words] == recorded
    assert len(ledger.grants) == 1


def test_an_approval_is_asked_for_once_and_waited_for_in_the_log() -> None:
    surroundings = Surroundings(graph({"id": "a", "irreversible": True}))
    ledger = surroundings.ledger()
    ledger.request("a", offset=3)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    assert ledger.core.open_request() is None
    again = surroundings.ledger()
    again.request("a", offset=3)
    assert again.grants == []
    assert again.written() == ["approval_requested", "job_waiting"]


@pytest.mark.parametrize(("decision", "granted"), [("approve", 1), ("reject", 0), ("edit", 0)])
def test_a_humans_answer_is_followed(decision: str, granted: int) -> None:
    ledger = Surroundings(graph({"id": "a", "irreversible": True})).ledger()
    ledger.request("a")
    asked = ledger.state().requested
    assert asked is not None
    answer = ev.ApprovalDecided(
        **asked.model_dump(include={"job_id", "node_id", "idempotency_key", "args_hash", "tool_version", "rule"}),
        decision=Decision(decision),
        approver="ann",
    )
    ledger.add(answer)
    assert len(ledger.grants) == granted
    assert (ledger.state().outcome is Settled.REJECTED) is not bool(granted)


def test_the_same_irreversible_call_of_a_job_is_refused_as_a_duplicate() -> None:
    plan = graph({"id": "a", "irreversible": True}, {"id": "b", "irreversible": True})
    ledger = Surroundings(plan, parse(ALLOW_ALL)).ledger()
    ledger.request("a")
    ledger.add(started("a", "n1"))
    ledger.request("b")
    assert ledger.written() == ["policy_allowed"]
    ledger.add(finished("a", "n1"))
    ledger.sleep(TTL_S)
    rejected = ledger.surroundings.log[-1]
    assert isinstance(rejected, ev.InvocationRejected)
    assert (rejected.reason, rejected.detail) == (RejectReason.DUPLICATE_OF, "a")
