"""How files are kept: files that can be read at one go, and one meaning for each class's name."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
SOURCES = ("libs", "services", "docs", "deploy", "examples")
ALONE = "verify.py"
"""A script that is handed out by itself, in one file."""
MOST_LINES = 500


def test_no_file_is_longer_than_can_be_read() -> None:
    lengths = {_name(file): len(file.read_text().splitlines()) for file in _files()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_source_file_is_either() -> None:
    sources = (file for folder in SOURCES for file in (TESTS.parent / folder).rglob("*.py") if file.name != ALONE)
    lengths = {str(file.relative_to(TESTS.parent)): len(file.read_text().splitlines()) for file in sources}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_two_files_outside_of_packages_have_one_name() -> None:
    """pytest takes only the first of them."""
    names = Counter(file.name for file in _files() if not (file.parent / "__init__.py").exists())
    assert [name for name, times in names.items() if times > 1 and name != "conftest.py"] == []


def test_no_two_files_give_one_name_to_their_classes() -> None:
    """Two that are one belong in tests/testkit; two that are not have names that say what each is."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in _files():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(_name(file))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def _files() -> list[Path]:
    return sorted(TESTS.rglob("*.py"))


def _name(file: Path) -> str:
    return str(file.relative_to(TESTS))
