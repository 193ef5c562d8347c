"""Finding tools: by module name, or by the entry point group `aetheris.tools` (docs/tools.md)."""

import importlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from aetheris.sdk.places import at_place
from aetheris.sdk.schema import DeclarationError
from aetheris.sdk.tools import AnyTool, Tool
from aetheris.sdk.workflows.declaration import AnyWorkflow, Workflow

GROUP = "aetheris.tools"

_NAMING = (ImportError, NameError, AttributeError, SyntaxError, KeyError)
"""Errors whose words are names; what any other says may hold a value, and only its class and its line are told."""


class ToolboxError(Exception):
    """Tools that can't be loaded; the message names the file and the line, or the module, and what to do."""


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


def load(modules: str = "", folder: Path | None = None) -> Toolbox:
    """The tools of a comma list of modules, which may lie in `folder`; without one, of every entry point of the group.

    Raises:
        ToolboxError: a module that can't be imported or has no tools, a tool that can't be registered, or two
            tools under one name and version.
    """
    toolbox, faults = examine(modules, folder)
    if faults:
        raise faults[0]
    return toolbox


def examine(modules: str = "", folder: Path | None = None) -> tuple[Toolbox, list[ToolboxError]]:
    """What of `load`'s tools can be loaded, and everything that can't."""
    _look_in(folder)
    found: dict[str, tuple[str, AnyTool]] = {}
    faults: list[ToolboxError] = []
    for source in sources_of(modules):
        try:
            for tool in _tools_of(source, _holder(source)):
                _take(found, source, tool, faults)
        except ToolboxError as fault:
            faults.append(fault)
    return Toolbox({key: tool for key, (_, tool) in found.items()}), faults


def workflows_in(source: str, folder: Path | None = None) -> list[AnyWorkflow]:
    """The workflows of one module, which may lie in `folder`.

    Raises:
        ToolboxError: it can't be imported, or has two of one name and version.
    """
    _look_in(folder)
    holder = _holder(source)
    held = vars(holder).values() if isinstance(holder, ModuleType) else [holder]
    found: dict[str, AnyWorkflow] = {}
    for one in (cast("AnyWorkflow", one) for one in held if isinstance(one, Workflow)):
        if found.setdefault(one.key, one) is not one:
            raise ToolboxError(f"{at_place(one.place, source)}: a second workflow {one.key}: give it another name")
    return list(found.values())


def sources_of(modules: str) -> list[str]:
    """The modules of a comma list; without one, those of every entry point of the group."""
    names = [name.strip() for name in modules.split(",") if name.strip()]
    return names or [point.value for point in entry_points(group=GROUP)]


def _look_in(folder: Path | None) -> None:
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))  # behind all else: a file of the folder stands for nothing that is installed


def _holder(source: str) -> object:
    name, _, attribute = source.partition(":")
    module = _import(name)
    try:
        return getattr(module, attribute) if attribute else module
    except AttributeError:
        raise ToolboxError(f"{source}: the module has no {attribute}") from None


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except DeclarationError as refused:
        raise ToolboxError(f"{at_place(refused.place, name)}: {refused}") from refused
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ToolboxError(
                f"{name}: there is no module {error.name} in this folder, nor is it installed:"
                " mend its name, or start in the folder that holds it"
            ) from error
        raise ToolboxError(_cannot_be_imported(name, error)) from error
    except SystemExit as error:  # a script that ends its process as it is imported
        raise ToolboxError(_cannot_be_imported(name, error)) from error
    except Exception as error:
        raise ToolboxError(_cannot_be_imported(name, error)) from error


def _cannot_be_imported(name: str, error: BaseException) -> str:
    text = f": {error.msg if isinstance(error, SyntaxError) else error}" if isinstance(error, _NAMING) else ""
    return f"{at_place(_raisedat_place(error), name)}: {name} cannot be imported: {type(error).__name__}{text}"


def _raisedat_place(error: BaseException) -> tuple[str, int] | None:
    """The innermost line of what isn't installed: of the author's own, where it runs at all."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return error.filename, error.lineno
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    own = [(f.filename, f.lineno) for f in frames if "site-packages" not in f.filename and f.lineno is not None]
    after = [place for place in own if Path(place[0]) not in (Path(__file__), Path(importlib.__file__))]
    return after[-1] if after else None


def _tools_of(source: str, holder: object) -> list[AnyTool]:
    if isinstance(holder, ModuleType):
        candidates: Iterable[object] = vars(holder).values()
    else:
        candidates = cast("Iterable[object]", holder) if isinstance(holder, list | tuple) else [holder]
    held = list(candidates)
    tools = [cast("AnyTool", one) for one in held if isinstance(one, Tool)]
    if not tools and not any(isinstance(one, Workflow) for one in held):
        raise ToolboxError(f"{source}: has no tools (functions under @tool), and no workflows")
    return tools


def _take(found: dict[str, tuple[str, AnyTool]], source: str, tool: AnyTool, faults: list[ToolboxError]) -> None:
    try:
        tool.registry_entry()
    except DeclarationError as refused:
        faults.append(ToolboxError(f"{at_place(refused.place, source)}: {refused}"))
        return
    first, known = found.setdefault(tool.key, (source, tool))
    if known is not tool:
        how = "the same" if known.schema_hash == tool.schema_hash else "another"
        there = at_place(known.place, first)
        faults.append(
            ToolboxError(
                f"{at_place(tool.place, source)}: declares {tool.key} with {how} schema, and so does {there}:"
                " give one another name or version"
            )
        )
