"""The gate, case by case: who may say what, by the rule that the log has."""

import pytest

from aetheris.protocol.planning.gate import Deciders, HumanAction, gate

WORDS = tuple(HumanAction)
NAMED = Deciders("pay", ("carol", "finance-*"))
OWN = Deciders("pay", self_approval=True)


@pytest.mark.parametrize("action", WORDS)
def test_without_names_it_is_everybody_but_who_submitted(action: HumanAction) -> None:
    assert gate(Deciders(), "bob", action, submitted_by="ann") is None
    assert (
        gate(Deciders(), "ann", action, submitted_by="ann")
        == f"who submitted the job may not {action}: somebody else must"
    )
    assert gate(OWN, "ann", action, submitted_by="ann") is None


@pytest.mark.parametrize("action", WORDS)
def test_those_who_are_named_and_nobody_else(action: HumanAction) -> None:
    assert gate(NAMED, "finance-7", action, submitted_by="ann") is None
    assert gate(NAMED, "bob", action, submitted_by="ann") == f"others are named to {action}"
    assert gate(NAMED, "carol", action, submitted_by="carol") is not None
    assert gate(Deciders("pay", ("carol",), self_approval=True), "ann", action, submitted_by="ann") is not None
    assert gate(Deciders("pay", ()), "bob", action) is not None


@pytest.mark.parametrize("action", WORDS)
def test_an_editor_may_say_anything_of_his_edit_but_yes(action: HumanAction) -> None:
    refused = gate(Deciders(), "bob", action, submitted_by="ann", edited_by="bob")
    assert (refused is not None) is (action is HumanAction.APPROVE)
    assert gate(OWN, "bob", action, submitted_by="ann", edited_by="bob") is None
