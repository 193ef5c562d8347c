"""Which tools of a server may be called: those that say what was pinned, and are registered with that very schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from aetheris.sdk.call_port import CallableTool, CallRefused, callable_tools
from aetheris.sdk.client import AsyncClient
from aetheris.sdk.equal_calls import PersonalTool
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.toolkits.mcp.mapping import registered_schema
from aetheris.sdk.toolkits.mcp.pins import NONE, Pins, fingerprint
from aetheris.sdk.toolkits.mcp.servers import McpServer

_NOT_PINNED = "is not pinned: look at it, and `aetheris mcp pin`"
_CHANGED = "says something else of itself than was pinned: look at it, and `aetheris mcp pin`"
_NOT_REGISTERED = "is not registered: an executor that has this server left it out, and its log says why"
_OTHER = "is registered with another schema: the executors have another file of servers, or another tool of that name"
_SHOWN = 100

Tell = Callable[[str, str], None]
"""(tool, why it is left out)."""


class ProxiedTools:
    """Those of one server, as far as it has listed them; what it lists later is judged anew."""

    def __init__(self, name: str, server: McpServer, pins: Pins, client: AsyncClient, tell: Tell) -> None:
        self._name = name
        self._server = server
        self._pins = pins
        self._client = client
        self._tell = tell
        self._callable: dict[str, CallableTool] = {}
        self._structured: set[str] = set()
        self._left_out: dict[str, str] = {}

    async def shown(self, listed: Sequence[Any], *, as_task: bool) -> list[dict[str, Any]]:
        """Of what the server lists, what may be called, with the schema that is registered; `as_task`: as a task, too.

        Raises:
            ApiError, PinsFileInvalid: nothing can be said.
        """
        prefix = f"{self._name}."
        entries = {str(one["name"]): one for one in await self._client.tools() if str(one["name"]).startswith(prefix)}
        pinned = self._pins.of(self._name) or {}
        found: list[dict[str, Any]] = []
        for raw in listed:
            name = str(cast("dict[str, Any]", raw).get("name")) if isinstance(raw, dict) else "?"
            try:
                one = self._judged(raw, pinned, entries)
            except (DeclarationError, PersonalTool) as reason:
                self._leave_out(name, str(reason))
                continue
            given = cast("dict[str, Any]", raw)
            self._callable[name] = one
            self._left_out.pop(name, None)
            (self._structured.add if given.get("outputSchema") else self._structured.discard)(name)
            tasks = {"execution": {**(given.get("execution") or {}), "taskSupport": "optional"}} if as_task else {}
            found.append({**given, "inputSchema": dict(one.schema), **tasks})
        return found

    def forget(self) -> None:
        """The server's list has changed: nothing is callable until it is listed again."""
        self._callable.clear()

    def has(self, name: str) -> bool:
        """Whether it was listed, and judged."""
        return name in self._callable or name in self._left_out

    def tool(self, name: str) -> CallableTool:
        """A tool that may be called.

        Raises:
            CallRefused: it may not; says why, by name.
        """
        if name in self._callable:
            return self._callable[name]
        why = self._left_out.get(name, "is no tool of this server")
        raise CallRefused(f"refused, and nothing was called: {name[:_SHOWN]} {why}")

    def is_structured(self, name: str) -> bool:
        """Whether it says what its structured content looks like."""
        return name in self._structured

    def _judged(self, raw: Any, pinned: Mapping[str, str], entries: Mapping[str, Mapping[str, Any]]) -> CallableTool:
        try:
            listed = ListedTool.model_validate(raw, by_name=False)
        except ValidationError:
            raise DeclarationError("is no tool as the protocol has them") from None
        known = pinned.get(listed.name, NONE)
        if known == NONE:
            raise DeclarationError(_NOT_PINNED)
        if known != fingerprint(listed):
            raise DeclarationError(_CHANGED)
        name = f"{self._name}.{listed.name}"
        schema, entry = registered_schema(name, self._server, listed).schema, entries.get(name)
        if entry is None:
            raise DeclarationError(_NOT_REGISTERED)
        if entry["schema"] != schema:
            raise DeclarationError(_OTHER)
        (one,) = callable_tools([entry])
        return one

    def _leave_out(self, name: str, why: str) -> None:
        self._callable.pop(name, None)
        if self._left_out.get(name) != why:
            self._tell(f"{self._name}.{name}"[: 2 * _SHOWN], why)
        self._left_out[name] = why
