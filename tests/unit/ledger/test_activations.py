"""A policy that is activated decides from then on, by its number; one that can't be used decides nothing."""

import hashlib

import pytest
from structlog.testing import capture_logs

from aetheris.ledger.core.decisions import Barrier, PolicyTaken
from aetheris.ledger.core.policy_in_force import PolicyInForce
from aetheris.ledger.operator_log import report_activation
from aetheris.protocol.fold.state import KeyStatus, Settled
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import POLICY_KEY, PolicyActivation, PolicyAnswer, PolicyBarrier
from aetheris.protocol.messages.event_values import Decision
from aetheris.protocol.planning.policy import PolicyError, parse
from aetheris.protocol.tables.policy_activations import MAX_POLICY_BYTES, PolicyActivations
from tests.testkit.histories import JOB, finished, graph, key_of, started
from tests.testkit.ledgers import ALLOW_ALL, Behind, Ledger, Surroundings

DENY_ALL = ALLOW_ALL.replace("allow", "deny")
NEWER = ALLOW_ALL + "\nsomething_new = true"
PIN = {"effect_class": "probeable", "irreversible": True, "schema_hash": "pay-1"}
PLAN = graph({"id": "a", "tool": "pay"}, {"id": "b", "tool": "pay", "args": {"n": 2}}, pay=PIN)


def ledger_of(policy: str = ALLOW_ALL) -> Ledger:
    return Surroundings(PLAN, parse(policy)).ledger()


def decisions(ledger: Ledger) -> list[tuple[str, str | None, int | None]]:
    kinds = (ev.PolicyAllowed, ev.ApprovalRequested, ev.InvocationRejected)
    found = (event for event in ledger.surroundings.log if isinstance(event, kinds))
    return [(event.event_type, event.policy_hash, event.activation) for event in found]


def hash_of(policy: str) -> str:
    return hashlib.sha256(policy.encode()).hexdigest()


def test_each_decision_names_the_policy_and_its_activation() -> None:
    ledger = ledger_of()
    ledger.request("a", offset=1)
    ledger.activate(1, DENY_ALL)
    ledger.request("b", offset=2)
    denied = ("invocation_rejected", hash_of(DENY_ALL), 1)
    assert decisions(ledger) == [("policy_allowed", hash_of(ALLOW_ALL), 0), denied, denied]
    assert ledger.policy_answers == [PolicyAnswer(number=1, partition=0)]


def test_what_was_allowed_and_has_not_started_is_judged_by_what_decides_now() -> None:
    ledger = ledger_of(ALLOW_ALL.replace('"allow"', '"approval"'))
    ledger.request("a", offset=1)
    assert [kind for kind, _, _ in decisions(ledger)] == ["approval_requested"]
    ledger.activate(1, DENY_ALL)
    ledger.request("a", offset=2)
    assert decisions(ledger)[-1] == ("invocation_rejected", hash_of(DENY_ALL), 1)


@pytest.mark.parametrize("irreversible", [True, False])
def test_what_is_asked_about_waits_for_its_answer_also_where_the_policy_lets_it_by_now(irreversible: bool) -> None:
    plan = graph({"id": "a", "tool": "pay"}, pay={**PIN, "irreversible": irreversible})
    ledger = Surroundings(plan, parse(ALLOW_ALL.replace('"allow"', '"approval"'))).ledger()
    ledger.request("a", offset=1)
    ledger.activate(1, ALLOW_ALL)
    ledger.request("a", offset=2)
    assert ledger.written() == ["approval_requested", "job_waiting"]
    assert ledger.grants == []
    asked = ledger.job.keys[key_of("a", tool="pay")].requested
    assert asked is not None
    yes = {name: getattr(asked, name) for name in ("node_id", "idempotency_key", "args_hash", "tool_version", "rule")}
    ledger.add(ev.ApprovalDecided(job_id=JOB, decision=Decision.APPROVE, approver="bob", **yes))
    assert [grant.activation for grant in ledger.grants] == [1]


def test_a_policy_that_this_version_cant_read_holds_everything_until_the_next() -> None:
    ledger = ledger_of()
    ledger.activate(1, NEWER)
    ledger.request("a", offset=1)
    assert (decisions(ledger), ledger.grants, ledger.policy_answers) == ([], [], [])
    assert "something_new" in str(ledger.policies.unusable)
    ledger.activate(2, ALLOW_ALL)
    assert decisions(ledger) == [("policy_allowed", hash_of(ALLOW_ALL), 2)]
    assert (len(ledger.grants), ledger.policy_answers) == (1, [PolicyAnswer(number=2, partition=0)])


def test_a_policy_that_asks_for_signatures_holds_everything_where_nobodys_count() -> None:
    ledger = ledger_of()
    ledger.activate(1, ALLOW_ALL.replace("allow", "approval") + "\nsigned = true")
    ledger.request("a", offset=1)
    assert (decisions(ledger), "AETHERIS_SIGNERS" in str(ledger.policies.unusable)) == ([], True)


def test_a_ledger_that_has_not_read_an_activation_decides_nothing_about_a_job_that_names_it() -> None:
    ledger = ledger_of()
    ledger.activate(1, ALLOW_ALL)
    ledger.request("a", offset=1)
    behind = ledger.surroundings.ledger()
    behind.request("b", offset=2)
    assert [number for _, _, number in decisions(behind)] == [1]
    behind.activate(1, ALLOW_ALL)
    assert [number for _, _, number in decisions(behind)] == [1, 1]


def test_what_a_replaced_ledger_had_allowed_counts_behind_a_later_activation() -> None:
    """Kafka has no conditional append: so going back to an earlier activation is no violation, for the proofs."""
    newer = ledger_of()
    newer.activate(1, ALLOW_ALL)
    newer.request("a", offset=1)
    replaced = Behind(Surroundings(PLAN, parse(ALLOW_ALL)))
    replaced.meanwhile = newer.surroundings.log[2:]
    replaced.request("b", offset=2)
    assert [number for _, _, number in decisions(replaced)] == [1, 0]
    after = replaced.surroundings.ledger()
    assert after.job.keys[key_of("b", {"n": 2}, "pay")].allowed_as("1") is not None
    after.activate(1, DENY_ALL)
    after.request("b", offset=3)
    assert (decisions(after)[-1], after.grants) == (("invocation_rejected", hash_of(DENY_ALL), 1), [])


@pytest.mark.parametrize(("policy", "warns"), [(ALLOW_ALL, False), (DENY_ALL, True), (NEWER, True)])
def test_that_the_configured_file_is_not_used_is_said_where_it_says_something_else(policy: str, warns: bool) -> None:
    said, in_force = activation(1, policy), PolicyInForce()
    in_force.take(said)
    with capture_logs() as lines:
        report_activation(said, in_force, parse(ALLOW_ALL))
    (first, *rest) = lines
    assert first["log_level"] == ("error" if policy == NEWER else "info")
    text = "the configured policy file is not used: activation 1 decides"
    assert [(line["event"], line["log_level"]) for line in rest] == ([(text, "warning")] if warns else [])


def activation(number: int, policy: str = ALLOW_ALL, **changes: str) -> PolicyActivation:
    body = {"policy": policy, "policy_hash": hash_of(policy), "by": "olga", "at": ""} | changes
    return PolicyActivation.model_validate({"number": number, **body})


def test_of_two_with_one_number_the_first_counts_and_none_that_leaves_one_out() -> None:
    found = PolicyActivations()
    assert not found.take(activation(2))
    assert found.take(activation(1))
    assert not found.take(activation(1, DENY_ALL))
    assert not found.take(activation(3))
    assert (found.number, found.active and found.active.policy) == (1, ALLOW_ALL)
    assert not found.answer(PolicyAnswer(number=2, partition=0))
    assert found.answer(PolicyAnswer(number=1, partition=0))
    assert found.take(activation(2, DENY_ALL))
    assert (found.answers(POLICY_KEY), [one.policy for one in found.history]) == ({}, ["", DENY_ALL])


@pytest.mark.parametrize(
    "strange", [activation(1, policy_hash="00"), activation(1, "#" * (MAX_POLICY_BYTES + 1))], ids=["hash", "size"]
)
def test_what_is_not_what_it_says_counts_for_nothing(strange: PolicyActivation) -> None:
    assert not PolicyActivations().take(strange)


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = " + "1" * 5_000, ".".join("a" * 50_000) + " = 1"])
def test_a_text_that_no_parser_takes_is_a_policy_error_and_holds_everything(text: str) -> None:
    with pytest.raises(PolicyError):
        parse(text)
    in_force = PolicyInForce()
    in_force.take(activation(1, text))
    assert "can't read the policy of activation 1" in str(in_force.unusable)


def test_a_lowered_budget_counts_what_was_spent_before_also_by_a_ledger_that_starts_again() -> None:
    few = ALLOW_ALL + "\nbudget = {calls = 2}"
    ledger = ledger_of(few)
    ledger.request("a", offset=1)
    ledger.request("b", offset=2)
    ledger.activate(1, few.replace("2", "1"))
    again = ledger.surroundings.ledger()
    again.activate(1, few.replace("2", "1"))
    late = Ledger(ledger.surroundings, activated=(1, few.replace("2", "1")))
    name = ALLOW_ALL.split('name = "')[1].split('"')[0]
    found = [one.core.jobs[JOB].account(name) for one in (ledger, again, late)]
    assert [(one.spent, sorted(one.taken)) for one in found] == [(2.0, sorted(found[0].taken))] * 3
    assert [all(charge.is_within for charge in one.taken.values()) for one in found] == [True] * 3


def test_an_activation_that_a_job_names_and_nobody_has_read_is_known_to_be_missing() -> None:
    ledger = ledger_of()
    ledger.activate(1, ALLOW_ALL)
    ledger.request("a", offset=1)
    behind = ledger.surroundings.ledger()
    assert (ledger.core.unknown_activation, behind.core.unknown_activation) == (0, 1)
    behind.activate(1, ALLOW_ALL)
    assert behind.core.unknown_activation == 0


def test_a_partition_answers_when_it_has_read_its_barrier_back() -> None:
    ledger = ledger_of()
    ledger.policies.take(activation(1))
    ledger.core.policy_activated(ledger.surroundings.now())
    decided = [ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now()) for _ in range(2)]
    assert decided == [[Barrier(PolicyBarrier(number=1))], []]
    ledger.core.passed(PolicyBarrier(number=1), 2)
    answer = PolicyTaken(PolicyAnswer(number=1, partition=0))
    assert ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now()) == [answer]
    ledger.core.passed(PolicyBarrier(number=1), 3)
    assert ledger.core.decide(ledger.surroundings.facts(), ledger.surroundings.now()) == []


def test_a_grant_names_the_activation_that_let_it() -> None:
    ledger = ledger_of()
    ledger.request("a", offset=1)
    ledger.activate(1, ALLOW_ALL)
    ledger.request("b", offset=2)
    assert [(grant.nodes, grant.activation) for grant in ledger.grants] == [(("a",), 0), (("a",), 1), (("b",), 1)]


def test_who_reads_the_barrier_of_an_activation_that_he_has_not_read_decides_nothing_until_he_has() -> None:
    ledger = ledger_of()
    ledger.core.passed(PolicyBarrier(number=1), 1)
    ledger.request("a", offset=1)
    assert (decisions(ledger), ledger.grants, ledger.core.unknown_barriers) == ([], [], 1)
    ledger.activate(1, DENY_ALL)
    assert [number for _, _, number in decisions(ledger)] == [1]


def test_a_barrier_of_what_nobody_has_activated_holds_nothing_once_all_is_read() -> None:
    ledger = ledger_of()
    ledger.core.passed(PolicyBarrier(number=9), 1)
    ledger.request("a", offset=1)
    assert ledger.core.activations_known(1, ledger.surroundings.now())
    ledger.settle()
    assert (ledger.core.unknown_barriers, len(ledger.grants)) == (0, 1)


def test_a_barrier_that_is_read_while_the_topic_is_holds_until_that_was_read_again() -> None:
    ledger = ledger_of()
    ledger.core.passed(PolicyBarrier(number=9), 1)
    ledger.core.passed(PolicyBarrier(number=1), 1)
    ledger.request("a", offset=1)
    assert not ledger.core.activations_known(1, ledger.surroundings.now())
    ledger.settle()
    assert (ledger.core.unknown_barriers, ledger.grants) == (2, [])
    ledger.activate(1, DENY_ALL)
    assert ledger.core.activations_known(2, ledger.surroundings.now())
    ledger.settle()
    assert [number for _, _, number in decisions(ledger)] == [1]


@pytest.mark.parametrize("rule", ['effect = "deny"', 'effect = "approval"', "effect = 'allow'\nwhen = 'false'"])
def test_what_certainly_took_no_effect_is_not_tried_again_where_the_policy_in_force_does_not_let_it(rule: str) -> None:
    ledger = Surroundings(graph({"id": "a"}), parse(ALLOW_ALL)).ledger()
    ledger.request("a", offset=1)
    ledger.add(started("a", "n1"))
    ledger.activate(1, ALLOW_ALL.replace('effect = "allow"', rule))
    granted = len(ledger.grants)
    ledger.add(finished("a", "n1", "retryable_failure").model_copy(update={"uncalled": True}))
    ledger.sleep(60)
    assert len(ledger.grants) == granted
    assert (ledger.state().outcome, ledger.state().sure) == (Settled.FAILED, True)
    assert str(ledger.state().reason).startswith("policy: ")


def test_what_may_have_acted_is_settled_as_always_whatever_the_policy_in_force_says() -> None:
    ledger = Surroundings(graph({"id": "a"}, act={"effect_class": "idempotent"}), parse(ALLOW_ALL)).ledger()
    ledger.request("a", offset=1)
    ledger.add(started("a", "n1"))
    ledger.activate(1, DENY_ALL)
    ledger.lease_lapses()
    ledger.sleep(60)
    assert ledger.state().status is KeyStatus.REOPENED
    assert ledger.grants[-1].activation == 1
