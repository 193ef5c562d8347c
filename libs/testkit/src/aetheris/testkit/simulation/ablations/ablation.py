"""A rule of the engine left out, for as long as a run lasts."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Replace = Callable[[Any], Any]
"""From the real function, the one in its place."""


@dataclass(frozen=True)
class Ablation:
    """A rule left out: by replaced functions of the real code, or by another gate before the call."""

    name: str
    rule: str
    """What is left out, as docs/simulation.md says it."""
    caught_within: int
    """Seeds after which it was found, with room."""
    replaced: Mapping[str, Replace] = field(default_factory=dict[str, Replace])
    gate: str = "log"
    locks: str = "inherited"
    compared: bool = True
    """Whether folds that differ end a run: where a forgery is believed they do before anything comes of it."""
    bodies: bool = False
    """Whether it concerns workflows, so that it is caught by seeds that have some."""

    @contextmanager
    def applied(self) -> Generator[None]:
        """The real code without the rule, for the length of the block."""
        with replaced(self.replaced):
            yield


NONE = Ablation("nothing left out", "nothing", 0)


def always(value: object) -> Replace:
    """In the place of a function, one that gives this."""

    def replacing(*_: object, **__: object) -> object:
        return value

    return lambda _: replacing


@contextmanager
def replaced(functions: Mapping[str, Replace]) -> Generator[None]:
    """These functions, by dotted path, for the length of the block."""
    kept: list[tuple[Any, str, Any]] = []
    try:
        for path, replace in functions.items():
            owner, name = _owner(path)
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replace(getattr(owner, name)))
        yield
    finally:
        for owner, name, real in reversed(kept):
            setattr(owner, name, real)


def _owner(path: str) -> tuple[Any, str]:
    """The module or class that a dotted path's last part lies in."""
    before, name = path.rsplit(".", 1)
    try:
        return import_module(before), name
    except ModuleNotFoundError:
        module, cls = before.rsplit(".", 1)
        return getattr(import_module(module), cls), name
