"""Who may end a worker, release a tool and end a freeze: the role, and what the policy says on top."""

from typing import Any

import pytest

from aetheris.protocol.base.principals import PrincipalKind, RecordedPrincipal, Role
from aetheris.protocol.planning.gate import HumanAction
from aetheris.protocol.planning.operators import may_not_operate
from aetheris.protocol.planning.policy import PolicyError, parse

RULES = '[[rules]]\nname = "all"\ntools = ["*"]\neffect = "allow"\n'
EVERYBODY = parse(RULES).operate
ACTIONS = {
    "worker_end": HumanAction.END_WORKER,
    "tool_release": HumanAction.RELEASE,
    "unfreeze": HumanAction.UNFREEZE,
}


def who(name: str = "ann", kind: PrincipalKind = PrincipalKind.PERSON, **fields: Any) -> RecordedPrincipal:
    given: dict[str, Any] = {"roles": (Role.OPERATE, Role.ADMINISTER), "tenant": "acme"} | fields
    return RecordedPrincipal(id=name, kind=kind, **given)


@pytest.mark.parametrize("action", ACTIONS.values())
def test_where_nobody_is_named_the_role_decides_and_of_a_workers_end_a_person(action: HumanAction) -> None:
    robot = who("robot", PrincipalKind.AGENT)
    assert may_not_operate(EVERYBODY, action, "ann", who()) is None
    assert (may_not_operate(EVERYBODY, action, "robot", robot) is None) is (action is not HumanAction.END_WORKER)
    assert may_not_operate(EVERYBODY, action, "ann", who(roles=(Role.SUBMIT, Role.APPROVE))) is not None


@pytest.mark.parametrize("said", [None, who("bob"), who(breaks_glass=True, roles=tuple(Role))])
@pytest.mark.parametrize("action", ACTIONS.values())
def test_of_whom_nothing_fitting_is_recorded_has_no_role(action: HumanAction, said: RecordedPrincipal | None) -> None:
    assert "the role" in str(may_not_operate(EVERYBODY, action, "ann", said))


@pytest.mark.parametrize(
    ("section", "fine", "refused", "sentence"),
    [
        ('by = ["ops-*"]', who("ops-1"), who("ann"), "others are named"),
        ('roles = ["audit"]', who(roles=(*who().roles, Role.AUDIT)), who(), "the role audit is needed"),
        ('kinds = ["service"]', who(kind=PrincipalKind.SERVICE), who(), "only a service may"),
    ],
)
@pytest.mark.parametrize("name", ACTIONS)
def test_whom_the_policy_names_says_it_and_nobody_else(
    name: str, section: str, fine: RecordedPrincipal, refused: RecordedPrincipal, sentence: str
) -> None:
    if name == "worker_end" and not section.startswith("kinds"):
        section += ', kinds = ["person"]'
    operate = parse(f"{RULES}[operate]\n{name} = {{{section}}}\n").operate
    assert may_not_operate(operate, ACTIONS[name], fine.id, fine) is None
    assert sentence in str(may_not_operate(operate, ACTIONS[name], refused.id, refused))
    without = fine.model_copy(update={"roles": ()})
    assert may_not_operate(operate, ACTIONS[name], fine.id, without) is not None
    for other in ACTIONS.keys() - {name, "worker_end"}:
        assert may_not_operate(operate, ACTIONS[other], refused.id, refused) is None


def test_a_tools_release_is_his_tenants() -> None:
    assert may_not_operate(EVERYBODY, HumanAction.RELEASE, "ann", who(), "acme") is None
    assert "another tenant" in str(may_not_operate(EVERYBODY, HumanAction.RELEASE, "ann", who(), "other"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[operate]\nunfreez = {by = ['a']}\n", "unfreez"),
        ("[operate]\nunfreeze = {}\n", "by, roles or kinds"),
        ("[operate]\nunfreeze = {by = []}\n", "by"),
        ("[operate]\nunfreeze = {roles = ['boss']}\n", "roles"),
        ("[operate.unfreeze]\nby = ['a']\nto = 1\n", "to"),
        ("[[operate]]\nunfreeze = {by = ['a']}\n", "operate"),
        ("operate = 1\n", "operate"),
        ("[operates]\n", "operates"),
    ],
)
def test_a_section_with_an_error_is_refused_and_named(text: str, named: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse(text + RULES if "=" in text.partition("\n")[0] else RULES + text)
    assert named in str(refused.value)
