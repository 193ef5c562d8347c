"""The files that modules of tools are made of, found without importing anything, and whether they have changed."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


class Sources:
    """The files of modules, as they were last looked at."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._seen = self._now()

    def changed(self) -> Sequence[str]:
        """The names of the files that were written, made or removed since the last look."""
        before, self._seen = self._seen, self._now()
        return sorted({Path(path).name for path, _ in before.items() ^ self._seen.items()})

    def _now(self) -> Mapping[str, int]:
        return {str(path): changed_ns for path in self._files() if (changed_ns := _changed_ns(path)) is not None}

    def _files(self) -> Iterator[Path]:
        """What lies beside a module's file too: it may import it; of a package, all of it."""
        for module in self._modules:
            origin = module_file(module)
            if origin is not None:
                yield from origin.parent.rglob("*.py") if "." in module else origin.parent.glob("*.py")


def module_file(module: str) -> Path | None:
    """The file of a module, found without importing it, in the working directory first; None where there is none."""
    where: Sequence[str] | None = [os.getcwd(), *sys.path]
    found: ModuleSpec | None = None
    parts = module.split(".")
    PathFinder.invalidate_caches()
    for place in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:place]), where)
        if found is None:
            return None
        where = list(found.submodule_search_locations or ())
    return Path(found.origin) if found is not None and found.origin is not None else None


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
