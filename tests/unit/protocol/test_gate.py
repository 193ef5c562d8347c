"""The gate, case by case: who may say what, by the rule that the log has."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aetheris.cli import token_files
from aetheris.protocol.base.principals import ORDINARY, Delegation, PrincipalKind, RecordedPrincipal, Role, speaker
from aetheris.protocol.planning.gate import Deciders, HumanAction, Matter, Vote, counted, gate
from tests.testkit.principals import person

WORDS = tuple(HumanAction)
NAMED = Deciders("pay", ("carol", "finance-*"))
OWN = Deciders("pay", self_approval=True)
OF_ANN = Matter("acme", "ann")
PERSONS = Deciders("pay", kinds=(PrincipalKind.PERSON,))
AUDITORS = Deciders("pay", roles=(Role.AUDIT, Role.ADMINISTER))


def said(by: str, action: HumanAction, deciders: Deciders, matter: Matter = OF_ANN) -> str | None:
    return gate(deciders, person(by, "acme"), action, matter)


def robot(who: str, *roles: Role, kind: PrincipalKind = PrincipalKind.AGENT) -> RecordedPrincipal:
    return RecordedPrincipal(id=who, kind=kind, roles=roles, tenant="acme")


@pytest.mark.parametrize("action", WORDS)
def test_without_names_it_is_everybody_but_who_submitted(action: HumanAction) -> None:
    assert said("bob", action, Deciders()) is None
    assert said("ann", action, Deciders()) == f"who submitted the job may not {action}: somebody else must"
    assert said("ann", action, OWN) is None


@pytest.mark.parametrize("action", WORDS)
def test_those_who_are_named_and_nobody_else(action: HumanAction) -> None:
    assert said("finance-7", action, NAMED) is None
    assert said("bob", action, NAMED) == f"others are named to {action} by rule pay: carol, finance-*"
    assert said("carol", action, NAMED, Matter("acme", "carol")) is not None
    assert said("ann", action, Deciders("pay", ("carol",), self_approval=True)) is not None
    assert said("bob", action, Deciders("pay", ())) == f"others are named to {action} by rule pay: nobody"


@pytest.mark.parametrize("action", WORDS)
def test_an_editor_may_say_anything_of_his_edit_but_yes(action: HumanAction) -> None:
    edited = Matter("acme", "ann", "bob")
    assert (said("bob", action, Deciders(), edited) is not None) is (action is HumanAction.APPROVE)
    assert said("bob", action, OWN, edited) is None


@pytest.mark.parametrize("action", WORDS)
def test_nobody_of_another_tenant_says_anything(action: HumanAction) -> None:
    for deciders in (Deciders(), OWN, NAMED):
        for who in (person("carol", "other"), person("carol")):
            assert gate(deciders, who, action, OF_ANN) == "the job is another tenant's"


@pytest.mark.parametrize("action", WORDS)
@pytest.mark.parametrize("kind", [PrincipalKind.AGENT, PrincipalKind.SERVICE])
def test_where_persons_are_asked_for_nothing_else_will_do(action: HumanAction, kind: PrincipalKind) -> None:
    other = robot("helper", *Role, kind=kind)
    why = f"only a person may {action} by rule pay; this is a principal of kind {kind}"
    assert gate(PERSONS, other, action, OF_ANN) == why
    assert gate(Deciders("pay"), other, action, OF_ANN) is None
    assert said("bob", action, PERSONS) is None


@pytest.mark.parametrize("action", WORDS)
def test_any_of_the_roles_will_do_and_no_other(action: HumanAction) -> None:
    assert gate(AUDITORS, robot("bob", Role.AUDIT), action, OF_ANN) is None
    why = f"the role audit or administer is needed to {action} by rule pay"
    assert gate(AUDITORS, robot("bob", Role.APPROVE, Role.RESOLVE), action, OF_ANN) == why


@pytest.mark.parametrize(
    "lie",
    [
        {"id": "bob", "tenant": "other"},
        {"id": "carol", "tenant": "acme"},
        {"id": "carol", "tenant": None},
    ],
)
def test_what_stands_beside_another_name_or_tenant_is_believed_in_nothing(lie: dict[str, Any]) -> None:
    claimed = person("bob").model_copy(update=lie)
    who = speaker("bob", "acme", claimed)
    assert (who.id, who.tenant, who.kind, who.roles) == ("bob", "acme", PrincipalKind.SERVICE, ())
    assert speaker("bob", "acme", None) == who
    assert speaker("bob", "acme", person("bob")) == person("bob", "acme")


def test_a_yes_is_counted_once_for_each_who_may_give_it() -> None:
    rule = Deciders("pay", kinds=(PrincipalKind.PERSON,), approvals=2)
    bob, carol = person("bob", "acme"), person("carol", "acme")
    others = (person("ann", "acme"), person("dan", "acme"), person("eve", "other"), robot("helper", *Role))
    matter = Matter("acme", "ann", "dan", tuple(map(Vote, (bob, bob, *others, carol, bob))))
    assert counted(rule, matter) == (bob, carol)
    behind = Matter("acme", "ann", None, (Vote(bob),))
    again = gate(rule, bob, HumanAction.APPROVE, behind)
    assert again == "who has approved this already is counted once: 2 different ones must"
    assert gate(rule, bob, HumanAction.REJECT, behind) is None, "he may change his mind"


def alone(who: str, *roles: Role, kind: PrincipalKind = PrincipalKind.PERSON) -> RecordedPrincipal:
    return RecordedPrincipal(id=who, kind=kind, roles=roles, tenant="acme", breaks_glass=True)


@pytest.mark.parametrize("action", WORDS)
def test_in_an_emergency_whom_the_rule_names_counts_for_nothing_and_whose_it_is_still_does(action: HumanAction) -> None:
    strict = Deciders("pay", ("carol",), roles=(Role.AUDIT,), kinds=(PrincipalKind.SERVICE,), approvals=5)
    bob = alone("bob", Role.BREAK_GLASS)
    assert gate(strict, bob, action, OF_ANN) is None
    assert gate(strict, bob.model_copy(update={"breaks_glass": None}), action, OF_ANN) is not None
    assert gate(strict, alone("bob", Role.APPROVE), action, OF_ANN) == (
        "the role break_glass is needed to decide in an emergency"
    )
    robot_s = gate(strict, alone("bob", Role.BREAK_GLASS, kind=PrincipalKind.AGENT), action, OF_ANN)
    assert robot_s == "only a person may decide in an emergency; this is a principal of kind agent"
    assert gate(strict, alone("ann", Role.BREAK_GLASS), action, OF_ANN) is not None
    assert gate(strict, bob, action, Matter("other", "ann")) == "the job is another tenant's"
    edited = gate(strict, bob, action, Matter("acme", "ann", "bob"))
    assert (edited is not None) is (action is HumanAction.APPROVE)


def test_no_token_may_decide_in_an_emergency_unless_that_is_said_of_it() -> None:
    assert set(ORDINARY) == set(Role) - {Role.BREAK_GLASS}
    assert Role.BREAK_GLASS not in token_files.entry("x" * 40, "approver", kind=PrincipalKind.PERSON).roles


END = datetime(2026, 1, 2, tzinfo=UTC)


def lent(who: str, lender: str, at: datetime = END - timedelta(seconds=1)) -> RecordedPrincipal:
    """Who acts in another's place."""
    return person(who, "acme").model_copy(update={"delegation": Delegation(principal=lender, until=END, at=at)})


@pytest.mark.parametrize("action", [word for word in WORDS if word is not HumanAction.EDIT])
def test_who_acts_in_anothers_place_is_held_against_that_ones_name_until_it_ends(action: HumanAction) -> None:
    assert gate(NAMED, lent("bob", "carol"), action, OF_ANN) is None
    assert gate(NAMED, lent("carol", "bob"), action, OF_ANN) is not None, "who is named lent nothing to himself"
    assert gate(NAMED, lent("bob", "carol", END), action, OF_ANN) == "what carol has lent has ended"


@pytest.mark.parametrize("action", WORDS)
@pytest.mark.parametrize("who", [lent("ann", "carol"), lent("carol", "ann")])
def test_neither_of_the_two_may_be_who_submitted(action: HumanAction, who: RecordedPrincipal) -> None:
    assert gate(Deciders(), who, action, OF_ANN) == f"who submitted the job may not {action}: somebody else must"


def test_neither_of_the_two_may_be_who_edited_nor_have_said_yes_before() -> None:
    for who in (lent("bob", "carol"), lent("carol", "bob"), person("bob", "acme")):
        assert gate(Deciders(), who, HumanAction.APPROVE, Matter("acme", "ann", "bob")) is not None
        voted = Matter("acme", "ann", votes=(Vote(lent("bob", "dora")),))
        assert gate(Deciders(approvals=2), who, HumanAction.APPROVE, voted) is not None
    two = Matter(
        "acme", "ann", votes=tuple(map(Vote, (lent("bob", "carol"), person("carol", "acme"), lent("dora", "bob"))))
    )
    assert [one.id for one in counted(Deciders(approvals=2), two)] == ["bob"]


def test_nobody_edits_or_breaks_glass_in_anothers_place() -> None:
    assert gate(Deciders(), lent("bob", "carol"), HumanAction.EDIT, OF_ANN) is not None
    alarmed = lent("bob", "carol").model_copy(update={"breaks_glass": True})
    assert gate(Deciders(), alarmed, HumanAction.APPROVE, OF_ANN) == "an emergency is decided in nobody's place"


@pytest.mark.parametrize("action", [HumanAction.APPROVE, HumanAction.REJECT])
def test_where_a_signature_is_asked_for_nobody_acts_in_anothers_place(action: HumanAction) -> None:
    signed = Deciders("pay", ("carol",), signed=True)
    assert gate(signed, person("carol", "acme"), action, OF_ANN, "key") is None
    refused = gate(signed, lent("bob", "carol"), action, OF_ANN, "key")
    assert refused == "where a signature is asked for, nobody acts in another's place: it would not say so"
