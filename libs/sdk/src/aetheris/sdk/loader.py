"""Finding tools: by module name, or by the entry point group `aetheris.tools` (docs/tools.md)."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, cast

from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.tools import AnyTool, Tool

GROUP = "aetheris.tools"


class ToolboxError(Exception):
    """Tools that can't be loaded; the message names the module."""


class UnknownTool(LookupError):
    """No tool of that name and version is loaded here."""


class Toolbox:
    """The tools that one process can call, under name@version."""

    def __init__(self, tools: Mapping[str, AnyTool]) -> None:
        self._tools = dict(tools)

    def get(self, name: str, version: str) -> AnyTool:
        """The tool as it was pinned.

        Raises:
            UnknownTool: another version isn't it.
        """
        try:
            return self._tools[f"{name}@{version}"]
        except KeyError:
            raise UnknownTool(f"{name}@{version} is not loaded") from None

    def entries(self) -> list[dict[str, Any]]:
        """All tools as tools.registry has them, by key."""
        return [self._tools[key].registry_entry() for key in sorted(self._tools)]

    def with_others(self, others: Iterable[AnyTool]) -> "Toolbox":
        """These tools and others; where both have a name and version, these stand."""
        return Toolbox({one.key: one for one in others} | self._tools)

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def load(modules: str = "") -> Toolbox:
    """The tools of a comma list of modules; without one, of every entry point of the group.

    Raises:
        ToolboxError: a module that can't be imported or has no tools, a tool that can't be registered, or two
            tools under one name and version.
    """
    names = [name.strip() for name in modules.split(",") if name.strip()]
    sources = [(name, _import(name)) for name in names] if names else list(_installed())
    found: dict[str, tuple[str, AnyTool]] = {}
    for source, holder in sources:
        for tool in _tools_of(source, holder):
            _add(found, source, tool)
    return Toolbox({key: tool for key, (_, tool) in found.items()})


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except DeclarationError as refused:
        raise ToolboxError(f"{name}: {refused}") from refused
    except Exception as error:
        raise ToolboxError(f"{name}: cannot be imported ({type(error).__name__})") from error


def _installed() -> Iterator[tuple[str, object]]:
    for point in entry_points(group=GROUP):
        name, _, attribute = point.value.partition(":")
        module = _import(name)
        try:
            yield point.value, getattr(module, attribute) if attribute else module
        except AttributeError:
            raise ToolboxError(f"{point.value}: the module has no {attribute}") from None


def _tools_of(source: str, holder: object) -> list[AnyTool]:
    if isinstance(holder, ModuleType):
        candidates: Iterable[object] = vars(holder).values()
    else:
        candidates = cast("Iterable[object]", holder) if isinstance(holder, list | tuple) else [holder]
    tools = [cast("AnyTool", one) for one in candidates if isinstance(one, Tool)]
    if not tools:
        raise ToolboxError(f"{source}: has no tools (functions under @tool)")
    return tools


def _add(found: dict[str, tuple[str, AnyTool]], source: str, tool: AnyTool) -> None:
    try:
        tool.registry_entry()
    except DeclarationError as refused:
        raise ToolboxError(f"{source}: {refused}") from refused
    first, known = found.setdefault(tool.key, (source, tool))
    if known is not tool:
        how = "the same" if known.schema_hash == tool.schema_hash else "another"
        raise ToolboxError(
            f"{source}: declares {tool.key} with {how} schema, and so does {first}: give one another version"
        )
