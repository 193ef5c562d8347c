"""What a module of tools imports of the project that it lies in, found without importing anything."""

import ast
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_PYTHON = (sysconfig.get_path("stdlib"), *((sys.prefix,) if sys.prefix != sys.base_prefix else ()))


def files_of(module: str) -> list[Path]:
    """The module's own file, and those below the folder of the tools, or in the module's own package, that it imports.

    At any remove. Installed packages are left out, as is what is imported by a name that is made as the program runs.
    Empty where there is no such module.
    """
    own = module_file(module)
    if own is None:
        return []
    package = module.partition(".")[0]
    found: dict[Path, None] = {}
    waiting = [(module, own)]
    while waiting:
        name, path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for imported in _imported(name, path):
            place = module_file(imported)
            if place is not None and (imported.partition(".")[0] == package or _is_ours(place)):
                waiting.append((imported, place))
    return list(found)


def module_file(module: str) -> Path | None:
    """The file of a module, found without importing it, in the folder of the tools last; None where there is none."""
    where: Sequence[str] | None = [*sys.path, _folder()]
    found: ModuleSpec | None = None
    parts = module.split(".")
    PathFinder.invalidate_caches()
    for place in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:place]), where)
        if found is None:
            return None
        where = list(found.submodule_search_locations or ())
    return Path(found.origin) if found is not None and found.origin is not None else None


def _folder() -> str:
    """Where tools' modules are, beside what is installed: as the services will look for them."""
    return os.environ.get("AETHERIS_TOOLS_FOLDER") or os.getcwd()


def _is_ours(path: Path) -> bool:
    installed = not _INSTALLED.isdisjoint(path.parts) or any(map(path.is_relative_to, _PYTHON))
    return path.is_relative_to(_folder()) and not installed


def _imported(module: str, path: Path) -> Iterator[str]:
    """Names of what may be modules, their packages first; none of a file that can't be read as Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for one in names:
                    yield from _with_packages(one.name)
            case ast.ImportFrom(module=subject, names=names, level=level):
                base = _from(package, subject, level)
                yield from _with_packages(base)
                yield from (f"{base}.{one.name}" for one in names if base)
            case _:
                pass


def _from(package: str, subject: str | None, level: int) -> str:
    """What a relative import begins at; empty where it leads out of every package."""
    if level == 0:
        return subject or ""
    parts = package.split(".")
    above = parts[: len(parts) - level + 1]
    return ".".join((*above, *((subject,) if subject else ()))) if above[:1] != [""] else ""


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".") if name else []
    yield from (".".join(parts[:place]) for place in range(1, len(parts) + 1))
