"""Who may freeze what, and what is shown of it; pure."""

from collections.abc import Iterator

from pydantic import ValidationError

from aetheris.gateway.core.access import missing
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem, ConflictProblem, ForbiddenProblem
from aetheris.protocol.api_operations import ActingView, FreezeBody, FreezeView
from aetheris.protocol.base.freeze_scope import FreezeScope
from aetheris.protocol.base.principals import Role
from aetheris.protocol.messages.commands import FreezeOrder
from aetheris.protocol.tables.freeze_orders import FreezeOrders

MOST_FREEZES = 1_000
"""In force at a time: every service keeps them in memory."""


def scope_of(wanted: FreezeBody, caller: Principal) -> FreezeScope:
    """What is to be frozen, or let go on: in the caller's tenant, where no other is named.

    Raises:
        BadRequest: not one of agent, tenant and tool is named, or an agent or a tenant everywhere.
        Forbidden: another tenant, or all, and the caller does not administer.
    """
    if wanted.agent is not None and wanted.tool is not None:
        raise BadRequestProblem("bad_request", "agent", "name an agent or a tool, not both")
    if wanted.everywhere and (wanted.tool is None or wanted.tenant is not None):
        raise BadRequestProblem("bad_request", "everywhere", "of a tool, and of no tenant")
    if wanted.agent is None and wanted.tool is None and wanted.tenant is None:
        raise BadRequestProblem("bad_request", "body", "name an agent, a tool or a tenant")
    tenant = None if wanted.everywhere else wanted.tenant or caller.tenant
    if tenant != caller.tenant and Role.ADMINISTER not in caller.roles:
        raise missing(Role.ADMINISTER, about="what is of another tenant, or of all")
    try:
        return FreezeScope(tenant=tenant, agent=wanted.agent, tool=wanted.tool)
    except ValidationError:
        raise BadRequestProblem("bad_request", "body", "a name is too long") from None


def order(
    scope: FreezeScope, number: int, reason: str | None, caller: Principal, at: str, *, begins: bool
) -> FreezeOrder:
    """What is written to the topic."""
    return FreezeOrder(
        scope=scope, number=number, frozen=begins, by=caller.id, at=at, reason=reason, principal=caller.recorded
    )


def check_end(order: FreezeOrder, caller: Principal) -> None:
    """Whether he may end a freeze.

    Raises:
        Forbidden: it is his own calls that are frozen, or somebody of another tenant has frozen them and the caller
            does not administer.
    """
    if order.scope.agent == caller.id and order.scope.tenant == caller.tenant:
        raise ForbiddenProblem("own_freeze", "who is frozen does not end it")
    ordered_by = order.principal.tenant if order.principal is not None else None
    if ordered_by != caller.tenant and Role.ADMINISTER not in caller.roles:
        raise missing(Role.ADMINISTER, about="what somebody of another tenant has frozen")


def check_room(orders: FreezeOrders) -> None:
    """Whether one more may be in force; raises Conflict."""
    if len(orders.in_force()) >= MOST_FREEZES:
        raise ConflictProblem("too_many_freezes", f"{MOST_FREEZES} are in force; end some that are not needed")


def visible(orders: FreezeOrders, caller: Principal) -> Iterator[FreezeOrder]:
    """The freezes in force that a caller may see: of his tenant and of all; all, where he administers."""
    everywhere = Role.ADMINISTER in caller.roles
    return (one for one in tuple(orders.in_force()) if everywhere or one.scope.tenant in (None, caller.tenant))


def shown(order: FreezeOrder, orders: FreezeOrders, partitions: int, caller: Principal) -> FreezeView:
    """An order, how many partitions have answered it, and what had started before; of a tool frozen everywhere
    what had started is told to who administers."""
    found = orders.answers(order.key) if orders.last(order.key) == order else {}
    names = Role.ADMINISTER in caller.roles or order.scope.tenant is not None
    acting = [ActingView(**one.model_dump()) for _, answer in sorted(found.items()) for one in answer.acting]
    return FreezeView(
        **order.scope.model_dump(exclude_none=True),
        number=order.number,
        frozen=order.frozen,
        by=order.by,
        at=order.at,
        reason=order.reason,
        answered=len(found),
        partitions=partitions,
        acting=tuple(acting) if names else (),
        more=sum(answer.more for answer in found.values()) + (0 if names else len(acting)),
    )
