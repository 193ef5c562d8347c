"""What prose may name in backticks: files of the repository, modules and what lies in them, members of classes."""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from aetheris.protocol.base.topics import Topic
from tests.testkit.system import REPOSITORY

SOURCES = sorted(
    path for folder in ("libs", "services", "tests", "deploy") for path in (REPOSITORY / folder).rglob("*.py")
)
TOPICS = frozenset(topic.removeprefix("aetheris.").removesuffix(".v1") for topic in Topic)

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:docs|tests|libs|services|deploy)(?:/[\w.*-]+)+/?|[\w/]*\w+\.py")
_MODULE = re.compile(r"[a-z_]+(?:\.[A-Za-z_]\w*)+")
_MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)(?:\(\))?")
_SETTING = re.compile(r"AETHERIS_[A-Z0-9_]+")
_COMMENT = re.compile(r"#.*`")
_NAME = re.compile(r"_?[A-Za-z]\w*(?:\.\w+)*(?:\(\))?")


def in_backticks(text: str) -> set[str]:
    """What a text says in backticks, within a line."""
    return set(_CODE.findall(text))


def said_in(path: Path) -> set[str]:
    """What the docstrings and comments of a module say in backticks."""
    return set(_source(path).said)


class Workspace:
    """Everything that our own packages and tests define."""

    def __init__(self) -> None:
        self._packages = {path.name: path for path in REPOSITORY.glob("*/*/src/aetheris/*") if path.is_dir()}

    def is_dead(self, word: str, folder: Path) -> bool:
        """Whether a word in backticks, in a file of that folder, names something of ours that isn't there."""
        if _PATH.fullmatch(word):
            return not self._has(folder, word)
        if _MODULE.fullmatch(word):
            return not self._leads_somewhere(word)
        if _SETTING.fullmatch(word):
            return not {word, word.removeprefix("AETHERIS_").lower()} & self._ours
        member = _MEMBER.fullmatch(word)
        if member is None or member[1] not in self.classes or self._has(folder, word):
            return False
        return member[2] not in self._members(member[1])

    def is_unknown(self, word: str) -> bool:
        """Whether a name, said of code, has a part that stands nowhere in any code."""
        return _NAME.fullmatch(word) is not None and not self.words.issuperset(word.removesuffix("()").split("."))

    @cached_property
    def classes(self) -> "dict[str, list[_Class]]":
        """Name → every class of that name."""
        found: defaultdict[str, list[_Class]] = defaultdict(list)
        for source in map(_source, SOURCES):
            for one in source.classes:
                found[one.name].append(one)
        return dict(found)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every module, every identifier, and every word of a string that is no docstring."""
        modules = {part for path in SOURCES for part in (path.stem, path.parent.name)}
        return frozenset(modules.union(*(_source(path).words for path in SOURCES)))

    @cached_property
    def _ours(self) -> frozenset[str]:
        """The same of what is not tests'."""
        return frozenset().union(
            *(_source(path).words for path in SOURCES if path.relative_to(REPOSITORY).parts[0] != "tests")
        )

    def _has(self, folder: Path, name: str) -> bool:
        """A file of the repository, of the page's own folder, or the only ones of that name anywhere."""
        places = (REPOSITORY, folder, *((folder / "src",) if (folder / "src").is_dir() else ()))
        if any(any(place.glob(name)) for place in places):
            return True
        return any(path.as_posix().endswith(f"/{name}") for path in SOURCES)

    def _leads_somewhere(self, name: str) -> bool:
        """Whether a dotted name of one of our packages leads somewhere; others are none of ours."""
        parts = name.removeprefix("aetheris.").split(".")
        if parts[0] not in self._packages or ".".join(parts) in TOPICS or len(parts) < 2:
            return True
        path = self._packages[parts[0]]
        for place, part in enumerate(parts[1:], 1):
            if (path / part).is_dir():
                path /= part
            elif (path / f"{part}.py").exists():
                return _defines(path / f"{part}.py", parts[place + 1 :])
            else:
                return _defines(path / "__init__.py", parts[place:])
        return True

    def _members(self, name: str) -> set[str]:
        """Of every class of that name, and of what it inherits from."""
        found: set[str] = set()
        for one in self.classes.get(name, ()):
            found |= one.members
            for inherited in one.bases:
                found |= self._members(inherited) if inherited != name else set()
        return found


@dataclass(frozen=True)
class _Class:
    name: str
    members: frozenset[str]
    bases: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    """What is asked of a module. Its tree is not kept: those of all modules are hundreds of MiB."""

    said: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]
    classes: tuple[_Class, ...]


@cache
def _source(path: Path) -> _Source:
    text = path.read_text()
    tree = ast.parse(text)
    said = {word for one in (*_docstrings(tree), *_comments(text)) for word in in_backticks(one)}
    classes = tuple(_class(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return _Source(frozenset(said), frozenset(map(sys.intern, _told(tree))), frozenset(_defined(tree.body)), classes)


def _class(node: ast.ClassDef) -> _Class:
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    bases = tuple(base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in plain)
    return _Class(node.name, frozenset((*_defined(node.body), *_assigned_to_self(node))), bases)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Also those below assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _comments(text: str) -> Iterator[str]:
    if _COMMENT.search(text):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from (token.string for token in tokens if token.type == tokenize.COMMENT)


def _told(tree: ast.Module) -> Iterator[str]:
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield from name.split(".")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if text not in docstrings:
                yield from re.findall(r"\w+", text)
            case _:
                pass


def _defines(path: Path, parts: list[str]) -> bool:
    return path.exists() and (not parts or ".".join(parts[:2]) in _source(path).names)


def _assigned_to_self(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner.attr


def _defined(body: list[ast.stmt], subject: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield subject + name
            case ast.ClassDef(name=name):
                yield subject + name
                yield from _defined(node.body, f"{subject}{name}.")
            case ast.Assign(targets=targets):
                yield from (subject + target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield subject + name
            case ast.ImportFrom(names=names):
                yield from (subject + (alias.asname or alias.name) for alias in names)
            case _:
                pass
