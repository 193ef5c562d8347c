"""The files that modules of tools are made of, found without importing anything, and whether they have changed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aetheris.cli.embedded.imports import files_of, module_file


class Sources:
    """The files of modules, as they were last looked at."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._imported = self._imports()
        self._seen = self._now()

    def changed(self) -> Sequence[str]:
        """The names of the files that were written, made or removed since the last look."""
        before, now = self._seen, self._now()
        changed = sorted({Path(path).name for path, _ in before.items() ^ now.items()})
        if changed:
            self._imported = self._imports()
            self._seen = {path: now.get(path, at) for path, at in self._now().items()}
        return changed

    def _now(self) -> Mapping[str, int]:
        return {str(path): changed_ns for path in self._files() if (changed_ns := _changed_ns(path)) is not None}

    def _files(self) -> Iterator[Path]:
        """What they import; what lies beside a module's file too: it may import it; of a package, all of it."""
        yield from self._imported
        for module in self._modules:
            origin = module_file(module)
            if origin is not None:
                yield from origin.parent.rglob("*.py") if "." in module else origin.parent.glob("*.py")

    def _imports(self) -> Sequence[Path]:
        return [path for module in self._modules for path in files_of(module)]


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
