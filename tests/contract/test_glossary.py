"""One thing has one name: classes and modules of the workspace, and the glossary's names."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.system import REPOSITORY

GLOSSARY = REPOSITORY / "docs" / "glossary.md"

ANATOMY = frozenset({"app", "settings", "handlers", "__main__", "__init__", "core.decisions", "core.partition"})
"""Modules that every service has in the same place."""

ANATOMY_CLASSES = frozenset({"Partition"})
"""Of a service's core: its face."""

ALONE = "proofs.standalone.verify"
"""A script that is handed out by itself, and shares no code with anything."""

NOUNS = {
    "blocking": "an adjective: the client whose calls block",
    "mapping": "a noun: what of a server's tools becomes what of ours",
    "nesting": "a noun: how deep JSON is nested",
    "partitioning": "Kafka's noun for which partition a key lies in",
    "planning": "a noun: the room of what plans",
    "signing": "a noun, as in code signing",
    "spending": "a noun: what was spent",
    "standing": "a noun: where a job stands",
    "testing": "a noun: the package for tests of users",
    "tracing": "a noun, as OpenTelemetry has it",
    "monitoring": "a noun, as operators have it",
}
"""Names in -ing that are no verbs, each with the reason."""


def _sources() -> Iterator[tuple[str, Path]]:
    for file in sorted(REPOSITORY.glob("*/*/src/aetheris/**/*.py")):
        if file.relative_to(REPOSITORY).parts[0] in ("libs", "services"):
            yield (
                ".".join(file.with_suffix("").parts[file.parts.index("aetheris", file.parts.index("src")) + 1 :]),
                file,
            )


def test_no_two_public_classes_have_one_name() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, file in _sources():
        for node in ast.parse(file.read_text()).body if module != ALONE else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    twice = {name: modules for name, modules in found.items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in ANATOMY_CLASSES} == {}
    assert {name for name in ANATOMY_CLASSES if name not in twice} == set()


def test_no_two_packages_have_a_module_of_one_name() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, _ in _sources():
        package, _, name = module.partition(".")
        if not name.endswith("__init__"):
            found[name].append(package)
    assert {name: packages for name, packages in found.items() if len(packages) > 1 and name not in ANATOMY} == {}


def test_a_module_is_named_by_a_noun() -> None:
    own = {module for module, _ in _sources()} | {file.stem for file in (REPOSITORY / "tests").glob("testkit/*.py")}
    parts = {(module, part) for module in own for part in module.split(".")}
    verbs = {module for module, part in parts if part.endswith("ing") and part.rsplit("_", 1)[-1] not in NOUNS}
    assert verbs == set()


def _code_names() -> list[str]:
    rows = [line.split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`([a-z_.]+\.[\w.]+)`", row[-2])]


@pytest.mark.parametrize("name", _code_names())
def test_a_name_of_the_glossary_is_there(name: str) -> None:
    assert _found(f"aetheris.{name}") is not None


def test_every_term_of_the_glossary_has_its_code() -> None:
    rows = [
        line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ") and not line.endswith("| code |")
    ]
    assert len(rows) == len(_code_names())


def _found(name: str) -> Any:
    """What a dotted name leads to: a module, or what lies in one; a dataclass' field too."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        before, last = name.rsplit(".", 1)
    owner = _found(before)
    fields = getattr(owner, "__dataclass_fields__", {}) | getattr(owner, "model_fields", {})
    return fields[last] if last in fields else getattr(owner, last)
