"""The policy: the first rule that matches decides, and a file that can't be read stops the ledger by name."""

from pathlib import Path
from typing import Any

import pytest

from aetheris.protocol.planning.policy import NO_RULE, Policy, PolicyEffect, PolicyError, PolicyVerdict, parse
from aetheris.runtime.process.policy_file import PolicyFileInvalid, load


def judge(policy: Policy, tool: str, *, irreversible: bool = False, **args: Any) -> PolicyVerdict:
    """What the policy says of a call of acme's."""
    facts = {"args": args, "job": {"tenant": "acme"}, "tool": {"name": tool}, "node": {"id": "a"}}
    return policy.verdict(tool, irreversible, lambda: facts)


def test_the_packaged_policy_asks_a_human_for_what_cannot_be_undone() -> None:
    policy = load(None)
    assert judge(policy, "refund", irreversible=True).effect is PolicyEffect.APPROVAL
    assert judge(policy, "refund").effect is PolicyEffect.ALLOW


def test_the_first_rule_that_matches_decides() -> None:
    policy = parse(
        """
        [[rules]]
        name = "small-refunds"
        tools = ["refund_small", "credit?"]
        effect = "allow"
        [[rules]]
        name = "no-refunds"
        tools = ["refund*"]
        effect = "deny"
        """
    )
    assert judge(policy, "refund_small", irreversible=True).rule.name == "small-refunds"
    assert judge(policy, "credit1").rule.name == "small-refunds"
    assert judge(policy, "refund_all").rule.name == "no-refunds"


def test_what_no_rule_matches_is_denied() -> None:
    verdict = judge(parse("rules = []"), "anything")
    assert (verdict.rule.name, verdict.effect) == (NO_RULE, PolicyEffect.DENY)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "maybe"', "rule 'a': effect"),
        ('[[rules]]\ntools = ["*"]\neffect = "deny"', "rule 1: name"),
        ('[[rules]]\nname = "a"\ntools = []\neffect = "deny"', "rule 'a': tools"),
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "deny"\nwhen = "x"', "rule 'a': when"),
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "deny"\n' * 2, "rule 'a': the name stands twice"),
        ("rules = 3", "policy.toml:1: rules: is no [[rules]]"),
        ('# mine\n[[rule]]\nname = "a"', "policy.toml:2: rule: there is no such key; did you mean rules?"),
        ("", "rules: is missing"),
        ("[[rules", "not TOML"),
    ],
)
def test_an_unusable_file_is_refused_and_names_the_rule(text: str, names: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(PolicyFileInvalid) as refused:
        load(path)
    assert names in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileInvalid, match="No such file"):
        load(tmp_path / "none.toml")


RULES = """
[[rules]]
name = "small"
tools = ["pay*"]
when = "args.amount <= 100 && job.tenant == 'acme'"
effect = "allow"
[[rules]]
name = "to-known"
tools = ["pay"]
when = "args.to.exists(x, x == 'bob')"
effect = "approval"
[[rules]]
name = "rest"
tools = ["*"]
effect = "deny"
"""


def test_a_condition_looks_at_arguments_and_job() -> None:
    policy = parse(RULES)
    assert judge(policy, "pay", amount=100, to=["eve"]).rule.name == "small"
    assert judge(policy, "pay", amount=101, to=["bob"]).rule.name == "to-known"
    assert judge(policy, "pay", amount=101, to=["eve"]).rule.name == "rest"


@pytest.mark.parametrize("args", [{}, {"amount": "1"}, {"amount": 2**80}, {"amount": 101, "to": 3}])
def test_a_condition_that_cannot_be_judged_denies_and_says_which(args: dict[str, Any]) -> None:
    verdict = judge(parse(RULES), "pay", **args)
    assert verdict.effect is PolicyEffect.DENY
    assert "can't be judged" in verdict.detail
    assert verdict.rule.name in verdict.detail


def test_arguments_are_asked_for_only_where_a_rule_looks_at_them() -> None:
    policy = parse(RULES + '[[rules]]\nname = "never"\ntools = ["*"]\neffect = "allow"')

    def unasked() -> dict[str, Any]:
        raise AssertionError

    assert policy.verdict("other", irreversible=False, facts=unasked).rule.name == "rest"


@pytest.mark.parametrize(
    ("rule", "follows"),
    [("", True), ('when = "true"', False), ("budget = {calls = 1}", False), ("rate = {calls = 1, per_s = 1}", False)],
)
def test_a_call_that_is_judged_by_itself_ends_a_run(rule: str, *, follows: bool) -> None:
    assert parse(f'[[rules]]\nname = "a"\ntools = ["*"]\neffect = "allow"\n{rule}').plain("act") == (
        "a" if follows else None
    )


@pytest.mark.parametrize(
    "rule",
    [
        'when = "args.amount >"',
        'when = "amount > 1"',
        'effect = "deny"\nexpires_s = 3',
        'effect = "deny"\nself_approval = true',
        'effect = "deny"\napprovers = ["ann"]',
        "budget = {calls = 1, most = 3}",
        'budget = {amount = "x"}',
        "rate = {calls = 0, per_s = 1}",
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_name(rule: str) -> None:
    effect = "" if rule.startswith("effect") else 'effect = "allow"\n'
    with pytest.raises(PolicyError, match="rule 'odd'"):
        parse(f'[[rules]]\nname = "odd"\ntools = ["*"]\n{effect}{rule}')
