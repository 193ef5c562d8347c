"""The conditions of a module, from its syntax tree, and its functions with one of them turned or taken out."""

import ast
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

MODULES = (
    "aetheris.protocol.fold.state",
    "aetheris.protocol.fold.start",
    "aetheris.protocol.fold.rules",
    "aetheris.protocol.planning.gate",
    "aetheris.ledger.core.adjudication",
    "aetheris.tool_executor.core.partition",
)
"""The fold; what the ledger lets through; what the executor reads back before a call."""

TURNED, NEVER, ALWAYS = "turned", "never", "always"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A condition that is not what it was."""

    module: str
    function: str
    condition: str
    how: str
    place: int
    """Which of the module's conditions, in the order of its text."""
    nth: int
    """Which of the same words in the same function, from 1."""

    @property
    def name(self) -> str:
        """What it is called in lists; without line numbers, so that it outlives changes elsewhere."""
        again = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.module.removeprefix('aetheris.')}.{self.function}: {self.condition}{again}: {self.how}"

    def apply(self) -> None:
        """Put it into this process: everybody who has imported the function calls the changed one."""
        tree = _parsed(self.module)
        site = list(_sites(tree))[self.place]
        site.put(_changed(site.condition, self.how))
        path = sys.modules[self.module].__file__ or self.module
        code = compile(ast.fix_missing_locations(tree), path, "exec")
        function_of(self.module, self.function).__code__ = _code(code, self.function)


@dataclass(slots=True)
class _Site:
    function: str
    condition: ast.expr
    without: str
    """How it is when it is taken out."""
    parent: ast.AST
    field: str
    index: int | None

    def put(self, other: ast.expr) -> None:
        if self.index is None:
            setattr(self.parent, self.field, other)
        else:
            getattr(self.parent, self.field)[self.index] = other


def mutants() -> list[Mutant]:
    """All of them."""
    return [mutant for module in MODULES for mutant in _of(module)]


@contextmanager
def noting(called: set[str]) -> Generator[None]:
    """Every function that has a condition adds its name to `called` when it is called."""
    changed: list[tuple[FunctionType, CodeType]] = []
    for module in MODULES:
        tree = _parsed(module)
        functions = {site.function for site in _sites(tree)}
        vars(import_module(module))["_note"] = called.add
        for name, node in _functions(tree):
            if name in functions:
                node.body.insert(0, ast.parse(f"_note('{module}.{name}')").body[0])
        code = compile(ast.fix_missing_locations(tree), module, "exec")
        for name in functions:
            function = function_of(module, name)
            changed.append((function, function.__code__))
            function.__code__ = _code(code, name)
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code


def _functions(tree: ast.AST, of: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            yield of + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{of}{child.name}.")


def function_of(module: str, name: str) -> FunctionType:
    """The function that a qualified name stands for, a property's getter too."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = vars(found)[part]
    return cast("FunctionType", found.fget if isinstance(found, property) else found)


def source_of(module: str) -> str:
    """The module's text."""
    return Path(import_module(module).__file__ or "").read_text()


def _of(module: str) -> Iterator[Mutant]:
    seen: Counter[tuple[str, str]] = Counter()
    for place, site in enumerate(_sites(_parsed(module))):
        words = " ".join(ast.unparse(site.condition).split())
        seen[site.function, words] += 1
        for how in (TURNED, site.without):
            yield Mutant(module, site.function, words, how, place, seen[site.function, words])


def _parsed(module: str) -> ast.Module:
    return ast.parse(source_of(module))


def _sites(tree: ast.AST, function: str = "", of: str = "") -> Iterator[_Site]:
    """Each test, each part of an `and` or `or`, and each comparison; the whole of an `and` is its parts."""
    for field, value in ast.iter_fields(tree):
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.FunctionDef):
                yield from _sites(child, function or of + child.name, "")
            elif isinstance(child, ast.ClassDef):
                yield from _sites(child, function, f"{of}{child.name}.")
            elif isinstance(child, ast.AST):
                without = _without(tree, field, child) if function else None
                if without is not None and isinstance(child, ast.expr):
                    yield _Site(function, child, without, tree, field, index)
                yield from _sites(child, function, of)


def _without(parent: ast.AST, field: str, child: ast.AST) -> str | None:
    if isinstance(child, ast.BoolOp) or (isinstance(child, ast.UnaryOp) and isinstance(child.operand, ast.BoolOp)):
        return None
    match parent:
        case ast.BoolOp(op=ast.Or(), values=[*_, ast.Constant()]):
            return None  # a value and its default
        case ast.BoolOp(op=ast.And()):
            return ALWAYS if field == "values" else None
        case ast.BoolOp(op=ast.Or()):
            return NEVER if field == "values" else None
        case ast.If() | ast.While() | ast.IfExp() if field == "test":
            return NEVER
        case ast.comprehension() if field == "ifs":
            return ALWAYS
        case _:
            return NEVER if isinstance(child, ast.Compare) and not isinstance(parent, ast.UnaryOp) else None


def _changed(condition: ast.expr, how: str) -> ast.expr:
    if how == TURNED:
        return ast.UnaryOp(ast.Not(), condition)
    return ast.Constant(how == ALWAYS)


def _code(code: CodeType, name: str) -> CodeType:
    """The code of a function, by its qualified name."""
    for part in name.split("."):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == part)
    return code
