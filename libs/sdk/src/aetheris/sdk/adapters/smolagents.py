"""For smolagents: tools whose calls are Aetheris' (docs/adapters.md)."""

from collections.abc import Mapping
from typing import Any, cast

from smolagents import Tool

from aetheris.sdk.adapters.run_tools import RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema

_KNOWN = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})


class LedgeredFunction(Tool):
    """One of a run's tools, with what smolagents can say of its schema; the gateway checks against all of it."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, run: RunTools, name: str, tool: CallableTool) -> None:
        self.name = name
        self.description = tool.description or name
        schema = shown_schema(tool)
        required = cast("list[str]", schema.get("required", []))
        properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties", {}))
        self.inputs = {one: _input(what, one in required) for one, what in properties.items()}
        self._run = run
        super().__init__()

    def forward(self, /, *placed: Any, **named: Any) -> str:
        """As smolagents has it; code that a model wrote may give arguments by their place."""
        args = dict(zip(self.inputs, placed, strict=False))
        if len(placed) > len(self.inputs) or args.keys() & named.keys():
            raise TypeError("refused, and nothing was called: an argument too many")
        return self._run.call(self.name, args | named).text


def smolagents_tools(run: RunTools) -> list[Tool]:
    """The run's tools, for `ToolCallingAgent(tools=…)` and `CodeAgent(tools=…)`."""
    return [LedgeredFunction(run, name, one) for name, one in run.shown.items()]


def _input(what: Mapping[str, Any], required: bool) -> dict[str, Any]:
    kind = what.get("type")
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    if all(one in _KNOWN for one in kinds):
        found = {name: value for name, value in what.items() if name != "anyOf"}  # which smolagents reads its own way
    else:
        found = {"type": "any"}
    found["description"] = what.get("description", "")
    return found if required else {**found, "nullable": True}
