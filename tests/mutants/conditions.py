"""The conditions of a module, from its syntax tree, and its functions with one of them turned or taken out."""

import ast
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

MODULES = (
    "aetheris.protocol.fold.state",
    "aetheris.protocol.fold.start",
    "aetheris.protocol.fold.revisions",
    "aetheris.protocol.fold.job_waits",
    "aetheris.protocol.fold.rules",
    "aetheris.protocol.fold.workers",
    "aetheris.protocol.fold.job_log",
    "aetheris.protocol.planning.gate",
    "aetheris.ledger.core.adjudication",
    "aetheris.tool_executor.core.partition",
)
"""The fold; what the ledger lets through; what the executor reads back before a call."""

TURNED, NEVER, ALWAYS = "turned", "never", "always"

Seen = set[tuple[str, int, bool]]
"""Module, place and value of the conditions that were come to."""


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
        return f"{self.where}: {self.condition}{again}: {self.how}"

    @property
    def where(self) -> str:
        """Its function, as lists have it."""
        return f"{self.module.removeprefix('aetheris.')}.{self.function}"

    @property
    def turns(self) -> frozenset[tuple[str, int, bool]]:
        """What the condition must come to, once, for anybody to see the difference."""
        ways = (True, False) if self.how == TURNED or ":=" in self.condition else (self.how == NEVER,)
        return frozenset((self.module, self.place, way) for way in ways)

    def apply(self) -> None:
        """Put it into this process: everybody who has imported the function calls the changed one."""
        function_of(self.module, self.function).__code__ = code_of(self)


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
def watching() -> Generator[Seen]:
    """Every condition notes, from here on, what it comes to."""
    seen: Seen = set()
    changed: list[tuple[FunctionType, CodeType]] = []
    for module in MODULES:
        tree = _parsed(module)
        sites = list(_sites(tree))
        for place, site in enumerate(sites):
            site.put(_noted(place, site.condition))
        vars(import_module(module))["_noted"] = _noting(seen, module)
        code = compile(ast.fix_missing_locations(tree), module, "exec")
        for name in {site.function for site in sites}:
            function = function_of(module, name)
            changed.append((function, function.__code__))
            function.__code__ = _code(code, name)
    try:
        yield seen
    finally:
        for function, code in changed:
            function.__code__ = code


def _noted(place: int, condition: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_noted", ast.Load()), [ast.Constant(place), condition], [])


def _noting(seen: Seen, module: str) -> Callable[[int, Any], Any]:
    def noted(place: int, value: Any) -> Any:
        seen.add((module, place, bool(value)))
        return value

    return noted


def _functions(tree: ast.AST, of: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            yield of + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{of}{child.name}.")


def code_of(mutant: Mutant) -> CodeType:
    """Its function's code, changed."""
    tree = _parsed(mutant.module)
    site = list(_sites(tree))[mutant.place]
    site.put(_changed(site.condition, mutant.how))
    path = sys.modules[mutant.module].__file__ or mutant.module
    return _code(compile(ast.fix_missing_locations(tree), path, "exec"), mutant.function)


def function_of(module: str, name: str) -> FunctionType:
    """The function that a qualified name stands for, a property's getter too."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = vars(found)[part]
    return cast("FunctionType", found.fget if isinstance(found, property) else found)


def hashes() -> dict[str, str]:
    """Function → the hash of what it does: its text without comments, layout and docstrings."""
    found: dict[str, str] = {}
    for module in MODULES:
        tree = _parsed(module)
        for name, node in _functions(tree):
            text = ast.unparse(_undocumented(node))
            found[f"{module.removeprefix('aetheris.')}.{name}"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return found


def _undocumented(node: ast.FunctionDef) -> ast.FunctionDef:
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return node


def _of(module: str) -> Iterator[Mutant]:
    seen: Counter[tuple[str, str]] = Counter()
    for place, site in enumerate(_sites(_parsed(module))):
        words = " ".join(ast.unparse(site.condition).split())
        seen[site.function, words] += 1
        for how in (TURNED, site.without):
            yield Mutant(module, site.function, words, how, place, seen[site.function, words])


def _parsed(module: str) -> ast.Module:
    return ast.parse(_text(module))


@cache
def _text(module: str) -> str:
    """As it was when it was first asked for: the file may change while mutants are looked for."""
    return Path(import_module(module).__file__ or "").read_text()


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
        case ast.If() | ast.While() | ast.IfExp() | ast.match_case() if field in ("test", "guard"):
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
