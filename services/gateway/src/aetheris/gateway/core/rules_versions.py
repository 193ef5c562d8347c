"""A person's word that jobs are created under later rules: judged before it is written, and what is shown; pure."""

from collections.abc import Mapping

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem, Unavailable
from aetheris.protocol.api_operations import RulesBody, RulesOrderView, RulesView, ServiceRules
from aetheris.protocol.messages import event_base
from aetheris.protocol.messages.commands import RULES_KEY, RulesOrder
from aetheris.protocol.tables.attendants import Attendant
from aetheris.protocol.tables.rules_orders import RulesOrders

GATEWAY = "gateway"
Known = Mapping[str, Mapping[str, Attendant]]
"""Service → the name of a process → its version, and the rules that it knows."""


def check(wanted: int, orders: RulesOrders, known: Known) -> None:
    """Whether a version may be ordered.

    Raises:
        Conflict: an earlier one, or one that a live process doesn't know, which is named.
        Unavailable: no gateway is seen, not even the one that is asked.
    """
    if wanted < orders.version:
        raise ConflictProblem("rules_go_back", f"jobs are created under version {orders.version} of the rules already")
    if wanted not in event_base.KNOWN_RULES:
        raise ConflictProblem("rules_unknown", f"this gateway does not know version {wanted} of the rules")
    if not known.get(GATEWAY):
        raise Unavailable("gateways_unseen", "which gateways live is not known: this one does not see itself")
    processes = [(f"{service}/{name}", own) for service, names in known.items() for name, own in names.items()]
    behind = [process for process, own in processes if wanted not in own.rules]
    if behind:
        named = ", ".join(behind)
        raise ConflictProblem(
            "rules_unknown", f"upgrade first who does not know version {wanted} of the rules: {named}", processes=behind
        )


def order(wanted: RulesBody, caller: Principal, at: str) -> RulesOrder:
    """What is written to the topic."""
    return RulesOrder(number=wanted.version, by=caller.id, at=at, reason=wanted.reason, principal=caller.recorded)


def shown(one: RulesOrder, orders: RulesOrders, partitions: int) -> RulesOrderView:
    """An order, and how many partitions have answered it."""
    answered = sum(number < partitions for number in orders.answers(RULES_KEY))
    return RulesOrderView(
        version=one.number, by=one.by, at=one.at, reason=one.reason, answered=answered, partitions=partitions
    )


def view(orders: RulesOrders, partitions: int, known: Known) -> RulesView:
    """Under which version jobs are created, and who knows which."""
    last = orders.active
    services = tuple(
        ServiceRules(service=service, name=name, version=own.version, known=tuple(sorted(own.rules)))
        for service, names in known.items()
        for name, own in sorted(names.items())
    )
    return RulesView(
        version=orders.version, order=shown(last, orders, partitions) if last is not None else None, services=services
    )
