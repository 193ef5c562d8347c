"""What `aetheris init` writes: a project that runs as it is."""

from collections.abc import Iterator
from importlib.resources import files

_SUFFIX = ".txt"
"""Of the files here, so that nobody takes them for modules and tests of this package."""


def contents() -> Iterator[tuple[str, str]]:
    """(name, text) of each file."""
    for file in sorted(files(__name__).iterdir(), key=lambda one: one.name):
        if file.name.endswith(_SUFFIX):
            yield file.name.removesuffix(_SUFFIX), file.read_text()
