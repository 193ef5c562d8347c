"""Who may freeze what: his own tenant's with `operate`, across tenants who administers; who is shown what of it."""

from typing import Any

import pytest

from aetheris.gateway.core import frozen
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem
from aetheris.protocol.api_operations import FreezeBody
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.protocol.messages.commands import ActingCall, FreezeAnswer
from aetheris.protocol.tables.freeze_orders import FreezeOrders

OPERATOR = Principal("bob", "acme", PrincipalKind.PERSON, frozenset({Role.OPERATE}))
ADMINISTRATOR = Principal("eve", "acme", PrincipalKind.PERSON, frozenset({Role.ADMINISTER}))


def known(*scopes: FreezeScope) -> FreezeOrders:
    orders = FreezeOrders()
    for scope in scopes:
        orders.take(frozen.order(scope, 1, "why", OPERATOR, "now", begins=True))
    return orders


@pytest.mark.parametrize(
    ("body", "scope"),
    [
        ({"agent": "a"}, {"tenant": "acme", "agent": "a"}),
        ({"tool": "t"}, {"tenant": "acme", "tool": "t"}),
        ({"tenant": "acme"}, {"tenant": "acme"}),
    ],
)
def test_what_is_named_is_meant_in_the_callers_tenant(body: dict[str, Any], scope: dict[str, str]) -> None:
    assert frozen.scope_of(FreezeBody(**body), OPERATOR) == FreezeScope(**scope)


@pytest.mark.parametrize(
    "body", [{"tenant": "other"}, {"tenant": "other", "agent": "a"}, {"tenant": "other", "tool": "t"}]
)
def test_another_tenant_is_for_who_administers(body: dict[str, Any]) -> None:
    with pytest.raises(ForbiddenProblem):
        frozen.scope_of(FreezeBody(**body), OPERATOR)
    assert frozen.scope_of(FreezeBody(**body), ADMINISTRATOR).tenant == "other"


def test_a_tool_in_all_tenants_is_for_who_administers() -> None:
    body = FreezeBody(tool="t", everywhere=True)
    with pytest.raises(ForbiddenProblem):
        frozen.scope_of(body, OPERATOR)
    assert frozen.scope_of(body, ADMINISTRATOR) == FreezeScope(tool="t")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"agent": "a", "tool": "t"},
        {"agent": "a", "everywhere": True},
        {"tenant": "acme", "everywhere": True},
        {"tenant": "acme", "tool": "t", "everywhere": True},
    ],
)
def test_what_names_nobody_or_two_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequestProblem):
        frozen.scope_of(FreezeBody(**body), ADMINISTRATOR)


def test_other_tenants_freezes_and_their_calls_are_not_shown() -> None:
    everywhere, own, other = FreezeScope(tool="t"), FreezeScope(tenant="acme"), FreezeScope(tenant="other")
    orders = known(everywhere, own, other)
    acting = ActingCall(job_id="j", node_id="n", tool="t", execution_id="e")
    for scope in (everywhere, own):
        orders.answer(FreezeAnswer(scope=scope, number=1, frozen=True, partition=0, acting=(acting,)))
    shown = {
        one.key: frozen.shown(one, orders, 2, caller)
        for caller in (OPERATOR,)
        for one in frozen.visible(orders, caller)
    }
    assert set(shown) == {everywhere.key, own.key}
    assert (shown[everywhere.key].acting, shown[everywhere.key].more) == ((), 1)
    assert [one.job_id for one in shown[own.key].acting] == ["j"]
    assert (shown[own.key].answered, shown[own.key].partitions) == (1, 2)
    assert {one.key for one in frozen.visible(orders, ADMINISTRATOR)} == {everywhere.key, own.key, other.key}


def test_who_is_frozen_and_who_is_of_a_tenant_that_another_froze_does_not_end_it() -> None:
    own = FreezeScope(tenant="acme", agent=OPERATOR.id)
    with pytest.raises(ForbiddenProblem):
        frozen.check_end(frozen.order(own, 1, None, ADMINISTRATOR, "now", begins=True), OPERATOR)
    frozen.check_end(frozen.order(own, 1, None, OPERATOR, "now", begins=True), ADMINISTRATOR)
    outside = Principal("root", "platform", PrincipalKind.PERSON, frozenset({Role.ADMINISTER}))
    order = frozen.order(FreezeScope(tenant="acme"), 1, None, outside, "now", begins=True)
    with pytest.raises(ForbiddenProblem):
        frozen.check_end(order, OPERATOR)
    frozen.check_end(order, ADMINISTRATOR)
    frozen.check_end(order, outside)


def test_so_many_and_no_more_are_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "MOST_FREEZES", 2)
    frozen.check_room(known(FreezeScope(tool="a")))
    with pytest.raises(ConflictProblem):
        frozen.check_room(known(FreezeScope(tool="a"), FreezeScope(tool="b")))
