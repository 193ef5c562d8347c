"""The gate, case by case: who may say what, by the rule that the log has."""

import pytest

from aetheris.protocol.planning.gate import Deciders, Word, gate

WORDS = tuple(Word)
NAMED = Deciders("pay", ("carol", "finance-*"))
OWN = Deciders("pay", self_approval=True)


@pytest.mark.parametrize("word", WORDS)
def test_without_names_it_is_everybody_but_who_submitted(word: Word) -> None:
    assert gate(Deciders(), "bob", word, submitted_by="ann") is None
    assert (
        gate(Deciders(), "ann", word, submitted_by="ann") == f"who submitted the job may not {word}: somebody else must"
    )
    assert gate(OWN, "ann", word, submitted_by="ann") is None


@pytest.mark.parametrize("word", WORDS)
def test_those_who_are_named_and_nobody_else(word: Word) -> None:
    assert gate(NAMED, "finance-7", word, submitted_by="ann") is None
    assert gate(NAMED, "bob", word, submitted_by="ann") == f"others are named to {word}"
    assert gate(NAMED, "carol", word, submitted_by="carol") is not None
    assert gate(Deciders("pay", ("carol",), self_approval=True), "ann", word, submitted_by="ann") is not None
    assert gate(Deciders("pay", ()), "bob", word) is not None


@pytest.mark.parametrize("word", WORDS)
def test_an_editor_may_say_anything_of_his_edit_but_yes(word: Word) -> None:
    refused = gate(Deciders(), "bob", word, submitted_by="ann", edited_by="bob")
    assert (refused is not None) is (word is Word.APPROVE)
    assert gate(OWN, "bob", word, submitted_by="ann", edited_by="bob") is None
