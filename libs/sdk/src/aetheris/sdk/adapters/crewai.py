"""For CrewAI: tools whose calls are Aetheris' (docs/adapters.md).

CrewAI shows a model schemas in the strict mode of its provider, in which each argument must be said. So one that may be
left out may be said as null here, unless null is a value of its own.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from pydantic import BaseModel, ConfigDict, PrivateAttr

from aetheris.protocol.planning.schemas import ArgsRefused, check_args
from aetheris.sdk.adapters.run_tools import CallAnswer, RunTools
from aetheris.sdk.call_port import CallableTool, shown_schema


class LedgeredCrewTool(BaseTool):
    """One of a run's tools."""

    _calls: RunTools = PrivateAttr()
    _left_out: frozenset[str] = PrivateAttr()
    """Arguments that are left out where they are said as null."""

    def __init__(self, run: RunTools, name: str, tool: CallableTool) -> None:
        schema = shown_schema(tool)
        left_out = frozenset(one for one in _optional(schema) if not _takes_null(schema, one))
        super().__init__(
            name=name,
            description=tool.description or name,
            args_schema=_arguments(name, _with_null(schema, left_out)),
            cache_function=_never,
        )
        self._calls, self._left_out = run, left_out

    def _run(self, **args: Any) -> str | ToolFailure:
        return _told(self._calls.call(self.name, self._said(args)))

    async def _arun(self, **args: Any) -> str | ToolFailure:
        return _told(await self._calls.acall(self.name, self._said(args)))

    def _said(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in args.items() if one is not None or name not in self._left_out}


def crewai_tools(run: RunTools) -> list[BaseTool]:
    """The run's tools, for `Agent(tools=…)` and `Task(tools=…)`."""
    return [LedgeredCrewTool(run, name, one) for name, one in run.shown.items()]


def _told(answer: CallAnswer) -> str | ToolFailure:
    return ToolFailure(message=answer.text) if answer.failed else answer.text


def _arguments(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """What CrewAI takes for a tool's arguments: it shows the schema, and takes any, which the gateway checks."""

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow", title=name)

        @classmethod
        def model_json_schema(cls, *_args: Any, **_how: Any) -> dict[str, Any]:
            return deepcopy(dict(schema))  # CrewAI changes it in place

    return Arguments


def _optional(schema: Mapping[str, Any]) -> set[str]:
    return set(schema.get("properties", {})) - set(schema.get("required", ()))


def _takes_null(schema: Mapping[str, Any], name: str) -> bool:
    alone = {**schema, "properties": {name: schema["properties"][name]}, "required": []}
    try:
        check_args(alone, {name: None})
    except ArgsRefused:
        return False
    return True


def _with_null(schema: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    shown = {name: {"anyOf": [one, {"type": "null"}]} if name in names else one for name, one in properties.items()}
    return {**schema, "properties": shown}


def _never(_args: Any = None, _result: Any = None) -> bool:
    """CrewAI keeps no answer: what an equal call comes to is asked for each time."""
    return False
