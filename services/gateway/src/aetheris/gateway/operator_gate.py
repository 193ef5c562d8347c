"""Whether the policy that decides lets somebody say what concerns more than one call (docs/policy.md)."""

import asyncio

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ForbiddenProblem
from aetheris.gateway.deadlines import Deadlines
from aetheris.protocol.planning.gate import HumanAction
from aetheris.protocol.planning.operators import Operate, may_not_operate
from aetheris.protocol.planning.policy import Policy, parse
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.log.order_table import OrderTable


class OperatorGate:
    """Asked before such a word is written; the configured policy counts until another is activated."""

    def __init__(self, table: OrderTable[PolicyActivations], configured: Policy, deadlines: Deadlines) -> None:
        self._table = table
        self._deadlines = deadlines
        self._known: tuple[int, Operate | None] = (0, configured.operate)
        """The activation that was read last, and its section; None: this gateway can't read it."""

    async def check(self, caller: Principal, action: HumanAction, tenant: str | None = None) -> int:
        """The activation by which he may.

        Raises:
            Forbidden: the policy names others, or can't be read here.
            Unavailable: nobody knows which policy decides.
        """
        number, operate = await self._section()
        if operate is None:
            raise ForbiddenProblem("not_named", f"the policy of activation {number} can't be read by this gateway")
        why = may_not_operate(operate, action, caller.id, caller.recorded, tenant)
        if why is not None:
            raise ForbiddenProblem("not_named", why)
        return number

    async def _section(self) -> tuple[int, Operate | None]:
        async with self._deadlines.deadline():
            await self._table.caught_up()
        last = self._table.orders.active
        if last is not None and last.number != self._known[0]:
            self._known = (last.number, await asyncio.to_thread(_section_of, last.policy))
        return self._known


def _section_of(policy: str) -> Operate | None:
    try:
        return parse(policy).operate
    except Exception:  # noqa: BLE001 - one of a later version, or whatever else: nobody is named by it here
        return None
