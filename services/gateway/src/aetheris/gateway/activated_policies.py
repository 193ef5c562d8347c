"""A person's word that another policy decides: into `policies`, which every partition's ledger answers there."""

import asyncio

from aetheris.gateway.awaited import Awaited
from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import bodies, policies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ConflictProblem
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.registry import Registry
from aetheris.protocol.api_operations import ActivationView, PolicyBody, PolicyView
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import PolicyActivation
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.tables.policy_activations import PolicyActivations
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.order_table import OrderTable


class ActivatedPolicies:
    """What is activated, as far as this gateway has read."""

    def __init__(
        self,
        table: OrderTable[PolicyActivations],
        writer: OrderWriter,
        signers: AllowedSigners,
        registry: Registry,
    ) -> None:
        self._table = table
        self._activations = table.orders
        self._writer = writer
        self._signers = signers
        self._registry = registry
        self._awaited = Awaited()
        table.listen(self._awaited.changed)

    async def view(self) -> PolicyView:
        """What decides, and what did before; raises Unavailable."""
        await self._caught_up()
        return policies.view(self._activations, await self._writer.count())

    async def activate(self, caller: Principal, raw: bytes) -> Reply[ActivationView]:
        """Let a policy decide; answered where every partition's ledger has. What decides already stays so.

        Raises:
            BadRequest: it is no policy, nothing was written. Conflict: somebody else's came first. Unavailable.
        """
        wanted = bodies.read(PolicyBody, raw)
        await asyncio.to_thread(policies.check, wanted, self._signers, self._registry.newest())
        await self._caught_up()
        last = self._activations.active
        if last is None or last.policy_hash != policies.hash_of(wanted.policy):
            if wanted.instead_of not in (None, self._activations.number):
                raise _meanwhile(last)
            at = self._writer.now()
            last = await self._write(policies.activation(wanted, self._activations.number + 1, caller, at))
        return await self._answered(last)

    async def _caught_up(self) -> None:
        async with self._writer.deadlines.deadline():
            await self._table.caught_up()

    async def _write(self, activation: PolicyActivation) -> PolicyActivation:
        record = draft(Topic.POLICIES, activation, key=activation.key, id=fresh_id(), source=SOURCE, time=activation.at)
        async with self._writer.deadlines.deadline():
            await self._writer.append(record)
            await self._table.caught_up()
        return activation

    async def _answered(self, activation: PolicyActivation) -> Reply[ActivationView]:
        count = await self._writer.count()
        is_answered = await self._awaited.until(lambda: self._is_answered(activation, count), self._writer.answer_s)
        return Reply(is_answered, policies.shown(activation, self._activations, count))

    def _is_answered(self, activation: PolicyActivation, count: int) -> bool:
        """Raises Conflict where another is in force."""
        last = self._activations.active
        if last != activation:
            raise _meanwhile(last)
        return len(self._activations.answers(activation.key)) >= count


def _meanwhile(last: PolicyActivation | None) -> ConflictProblem:
    by = f" by {last.by}" if last is not None else ""
    return ConflictProblem("activated_meanwhile", f"another policy was activated meanwhile{by}")
