"""A person's word that a tool's calls wait no longer: into `tools.registry`, which every partition's ledger reads."""

from aetheris.gateway.awaited import Awaited
from aetheris.gateway.command_writer import SOURCE
from aetheris.gateway.commands import Reply
from aetheris.gateway.core import bodies
from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import NotFoundProblem
from aetheris.gateway.operator_gate import OperatorGate
from aetheris.gateway.order_writer import OrderWriter
from aetheris.gateway.registry import Registry
from aetheris.protocol.api import ToolReleaseBody
from aetheris.protocol.api_operations import ReleaseView, ToolReleased
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import ToolRelease
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.planning.gate import HumanAction
from aetheris.runtime.base.fresh_ids import fresh_id
from aetheris.runtime.log.interface import Log
from aetheris.runtime.log.table import Table


class ToolReleases:
    """The last release of each tool and tenant."""

    def __init__(
        self,
        table: Table,
        registry: Registry,
        log: Log,
        writer: OrderWriter,
        operators: OperatorGate,
    ) -> None:
        self._table = table
        self._registry = registry
        self._log = log
        self._writer = writer
        self._operators = operators
        self._messages = writer.keys.messages
        self._awaited = Awaited()
        table.on_change(self._awaited.changed)

    def of(self, tenant: str) -> dict[str, ReleaseView]:
        """Those of a tenant, by tool."""
        known = (self._read(key, value) for key, value in self._table.items())
        return {one.tool: _shown(one) for one in known if one is not None and one.tenant == tenant}

    async def release(self, caller: Principal, tool: str, raw: bytes) -> Reply[ToolReleased]:
        """Take it, for the jobs of the caller's tenant; answered where the topic has it.

        Raises:
            BadRequest, NotFound, Forbidden (the policy names others), Unavailable.
        """
        wanted = bodies.read(ToolReleaseBody, raw)
        if tool not in self._registry.newest():
            raise NotFoundProblem("unknown_tool", "no tool of this name is registered")
        activation = await self._operators.check(caller, HumanAction.RELEASE, caller.tenant)
        tool_release = await self._write(caller, tool, wanted.reason, activation)
        is_there = await self._awaited.until(lambda: self._has(tool_release), self._writer.answer_s)
        return Reply(is_there, ToolReleased(tool=tool, released=_shown(tool_release)))

    async def _write(self, caller: Principal, tool: str, reason: str, activation: int) -> ToolRelease:
        at = self._writer.now()
        async with self._writer.deadlines.deadline():
            count = await self._writer.partitions()
            places = [(Topic.JOBS_EVENTS, number) for number in range(count)]
            ends = await self._log.end_offsets(places)
            below = tuple(ends[place] for place in places)
            release = ToolRelease(
                tenant=caller.tenant,
                tool=tool,
                by=caller.id,
                reason=reason,
                at=at,
                below=below,
                principal=caller.recorded,
                activation=activation,
            )
            record = draft(Topic.TOOLS_REGISTRY, release, key=release.key, id=fresh_id(), source=SOURCE, time=at)
            await self._writer.append(record)
        return release

    def _has(self, release: ToolRelease) -> bool:
        """Whether the topic has it, or another that was said after it."""
        found = self._read(release.key, self._table.get(release.key) or b"")
        return found is not None and found.at >= release.at

    def _read(self, key: str, value: bytes) -> ToolRelease | None:
        release = ToolRelease.read(key, value)
        if release is None or not self._messages.counts(Topic.TOOLS_REGISTRY, release.type_name, key.encode(), value):
            return None
        return release


def _shown(release: ToolRelease) -> ReleaseView:
    return ReleaseView(by=release.by, reason=release.reason, at=release.at)
