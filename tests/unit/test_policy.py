"""The policy: the first rule that matches decides, and a file that can't be read stops the ledger by name."""

from pathlib import Path

import pytest

from aetheris.ledger.policy import NO_RULE, PolicyEffect, PolicyError, load, parse


def test_the_packaged_policy_asks_a_human_for_what_cannot_be_undone() -> None:
    policy = load(None)
    assert policy.rule_for("refund", irreversible=True).effect is PolicyEffect.APPROVAL
    assert policy.rule_for("refund", irreversible=False).effect is PolicyEffect.ALLOW


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
    assert policy.rule_for("refund_small", irreversible=True).name == "small-refunds"
    assert policy.rule_for("credit1", irreversible=False).name == "small-refunds"
    assert policy.rule_for("refund_all", irreversible=False).name == "no-refunds"


def test_what_no_rule_matches_is_denied() -> None:
    rule = parse("rules = []").rule_for("anything", irreversible=False)
    assert (rule.name, rule.effect) == (NO_RULE, PolicyEffect.DENY)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "maybe"', "rule 'a': effect"),
        ('[[rules]]\ntools = ["*"]\neffect = "deny"', "rule 1: name"),
        ('[[rules]]\nname = "a"\ntools = []\neffect = "deny"', "rule 'a': tools"),
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "deny"\nwhen = "x"', "rule 'a': when"),
        ('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "deny"\n' * 2, "rule 'a': the name stands twice"),
        ("rules = 3", "[[rules]]"),
        ("[[rules", "not TOML"),
    ],
)
def test_an_unusable_file_is_refused_and_names_the_rule(text: str, names: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(PolicyError) as refused:
        load(path)
    assert names in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        load(tmp_path / "none.toml")
