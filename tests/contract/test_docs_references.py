"""What the documents name is there: files, links, modules and what lies in them; and every core module has its line."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aetheris.protocol.base.topics import Topic
from tests.testkit.system import REPOSITORY

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "libs/*/README.md", "services/*/README.md", "tests/**/*.md")
    for path in REPOSITORY.glob(pattern)
)
SOURCES = sorted(
    path for folder in ("libs", "services", "tests", "deploy") for path in (REPOSITORY / folder).rglob("*.py")
)
PACKAGES = {path.name: path for path in REPOSITORY.glob("*/*/src/aetheris/*") if path.is_dir()}
TOPICS = frozenset(topic.removeprefix("aetheris.").removesuffix(".v1") for topic in Topic)
FEATURES = REPOSITORY / "docs" / "features.md"

_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:docs|tests|libs|services|deploy)(?:/[\w.*-]+)+/?|[\w/]*\w+\.py")
_NAME = re.compile(r"[a-z_]+(?:\.[A-Za-z_]\w*)+")
_DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    code = set(_CODE.findall(text))
    missing += [word for word in code if _PATH.fullmatch(word) and not _has(page.parent, word)]
    missing += [word for word in code if _NAME.fullmatch(word) and not word.endswith(".py") and not _is_name(word)]
    assert sorted(missing) == []


def test_the_documents_that_the_code_names_are_there() -> None:
    named = {(path, name) for path in SOURCES for name in _DOCUMENT.findall(path.read_text())}
    assert [(str(path), name) for path, name in named if not (REPOSITORY / name).exists()] == []


def test_every_module_that_decides_has_its_line_among_the_features() -> None:
    listed = set(_CODE.findall(FEATURES.read_text()))
    cores = [path for path in REPOSITORY.glob("services/*/src/aetheris/*/core/*.py") if path.name != "__init__.py"]
    assert [str(path.relative_to(REPOSITORY)) for path in sorted(cores) if _dotted(path) not in listed] == []


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[path.parts.index("aetheris") + 1 :])


def _has(folder: Path, name: str) -> bool:
    """A file of the repository, of the page's own folder, or the only ones of that name anywhere."""
    places = (REPOSITORY, folder, *((folder / "src",) if (folder / "src").is_dir() else ()))
    if any(any(place.glob(name)) for place in places):
        return True
    return any(path.as_posix().endswith(f"/{name}") for path in SOURCES)


def _is_name(name: str) -> bool:
    """Whether a dotted name of one of our packages leads somewhere; others are none of ours."""
    parts = name.removeprefix("aetheris.").split(".")
    if parts[0] not in PACKAGES or ".".join(parts) in TOPICS or len(parts) < 2:
        return True
    path = PACKAGES[parts[0]]
    for place, part in enumerate(parts[1:], 1):
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").exists():
            return _defines(path / f"{part}.py", parts[place + 1 :])
        else:
            return _defines(path / "__init__.py", parts[place:])
    return True


def _defines(path: Path, parts: list[str]) -> bool:
    return path.exists() and (not parts or ".".join(parts[:2]) in _names(path))


@cache
def _names(path: Path) -> frozenset[str]:
    return frozenset(_defined(ast.parse(path.read_text()).body))


def _defined(body: list[ast.stmt], of: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield of + name
            case ast.ClassDef(name=name):
                yield of + name
                yield from _defined(node.body, f"{of}{name}.")
            case ast.Assign(targets=targets):
                yield from (of + target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield of + name
            case ast.ImportFrom(names=names):
                yield from (of + (alias.asname or alias.name) for alias in names)
            case _:
                pass
