"""The tools that this process can call: the toolbox, and the kinds time and random."""

import secrets
from collections.abc import Sequence
from typing import Any

from aetheris.protocol.commands import RegistryEntry
from aetheris.protocol.events import Outcome
from aetheris.protocol.invocation import Invocation, uses
from aetheris.protocol.plan import Kind, ToolPin
from aetheris.sdk.context import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.sdk.outcomes import Retryable, Succeeded
from aetheris.sdk.schema import BadArguments
from aetheris.sdk.tools import AnyTool
from aetheris.streams.clock import Clock
from aetheris.tool_executor.core import Refusal
from aetheris.tool_executor.reports import NOT_EXECUTED

LONGEST_ERROR = 500  # characters
_MISSING = Refusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: tool version missing")


class Calls:
    """Makes the calls of nodes."""

    def __init__(self, toolbox: Toolbox, clock: Clock) -> None:
        self._tools: dict[tuple[str, str], AnyTool] = {(tool.name, tool.version): tool for tool in toolbox}
        self._clock = clock

    def registry(self) -> Sequence[RegistryEntry]:
        """What is registered of each tool."""
        return [RegistryEntry.model_validate(tool.registry_entry()) for tool in self._tools.values()]

    def refuses(self, call: Invocation) -> Refusal | None:
        """Why the call can't be made here.

        Arguments without references were checked against the pinned schema when the plan was taken.
        """
        pin, name = call.entry.pin, call.entry.node.tool
        if pin is None or name is None:
            return None
        tool = self._pinned(name, pin)
        if tool is None:
            return _MISSING
        return _refused_arguments(tool, call) if uses(call.entry) else None

    async def make(self, call: Invocation, ctx: ToolContext) -> Said:
        """One call, once; whatever it does, it ends as one of the outcomes."""
        pin, name = call.entry.pin, call.entry.node.tool
        if pin is None or name is None:
            return self._builtin(call.entry.node.kind)
        tool = self._pinned(name, pin)
        return Retryable(_MISSING.error) if tool is None else await invoke(tool, call.args, ctx)

    def _pinned(self, name: str, pin: ToolPin) -> AnyTool | None:
        """The tool of exactly that version and schema."""
        tool = self._tools.get((name, pin.version))
        return tool if tool is not None and tool.schema_hash == pin.schema_hash else None

    def _builtin(self, kind: Kind) -> Succeeded:
        return Succeeded(self._time() if kind is Kind.TIME else _random())

    def _time(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": now.isoformat(timespec="milliseconds"), "unix_ms": int(now.timestamp() * 1000)}


def _random() -> dict[str, Any]:
    """A number in [0, 1) with 53 random bits, and 128 random bits as hex."""
    return {"value": secrets.randbits(53) / (1 << 53), "hex": secrets.token_hex(16)}


def _refused_arguments(tool: AnyTool, call: Invocation) -> Refusal | None:
    try:
        tool.signature.bind(call.args)
    except BadArguments as refused:
        return Refusal(Outcome.PERMANENT, f"invalid_args: {refused}"[:LONGEST_ERROR])
    return None
