"""What documents, docstrings and comments name is there: files, links, modules and what lies in them; and every core
module has its line.
"""

import re
from pathlib import Path

import pytest

from tests.testkit.references import SOURCES, Workspace, in_backticks, said_in
from tests.testkit.system import REPOSITORY

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "libs/*/README.md", "services/*/README.md", "tests/**/*.md")
    for path in REPOSITORY.glob(pattern)
)
FEATURES = REPOSITORY / "docs" / "features.md"

_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path, workspace: Workspace) -> None:
    text = page.read_text()
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    missing += [word for word in in_backticks(text) if workspace.is_dead(word, page.parent)]
    assert sorted(missing) == []


def test_what_the_code_says_of_code_is_there(workspace: Workspace) -> None:
    """A docstring or a comment that outlived what it names."""
    missing = [
        f"{path.relative_to(REPOSITORY)}: {word}"
        for path in SOURCES
        for word in sorted(said_in(path))
        if workspace.is_dead(word, path.parent) or workspace.is_unknown(word)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("word", "dead"),
    [
        ("ledger.core.partition", False),
        ("ledger.core.partitions", True),
        ("aetheris.ledger.core.partition.Partition.evolve", False),
        ("aetheris.ledger.core.partition.Partition.revolve", True),
        ("Partition.evolve", False),
        ("Partition.evolve()", False),
        ("Partition.revolve", True),
        ("tools.registry", False),
        ("tests/testkit/references.py", False),
        ("tests/testkit/reference.py", True),
        ("AETHERIS_KAFKA", False),
        ("AETHERIS_KAFKAS", True),
        ("asyncio.no_such", False),
        ("NotOurs.member", False),
    ],
)
def test_a_dead_name_is_seen_and_others_are_not(workspace: Workspace, word: str, dead: bool) -> None:
    assert workspace.is_dead(word, REPOSITORY) is dead


def test_a_name_that_no_code_knows_is_seen(workspace: Workspace) -> None:
    gone = "_".join(("left", "long", "ago"))
    for known, unknown in (("is_dead", gone), ("Workspace.is_dead()", f"Workspace.{gone}()"), ("two words", "a b")):
        assert not workspace.is_unknown(known)
        assert workspace.is_unknown(unknown) is (gone in unknown)


def test_the_documents_that_the_code_names_are_there() -> None:
    named = {(path, name) for path in SOURCES for name in _DOCUMENT.findall(path.read_text())}
    assert [(str(path), name) for path, name in named if not (REPOSITORY / name).exists()] == []


def test_every_module_that_decides_has_its_line_among_the_features() -> None:
    listed = in_backticks(FEATURES.read_text())
    cores = [path for path in REPOSITORY.glob("services/*/src/aetheris/*/core/*.py") if path.name != "__init__.py"]
    assert [str(path.relative_to(REPOSITORY)) for path in sorted(cores) if _dotted(path) not in listed] == []


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[path.parts.index("aetheris") + 1 :])


def test_each_of_the_threat_model_names_the_tests_that_try_it() -> None:
    table = (REPOSITORY / "docs" / "threat-model.md").read_text().partition("\n\n| who |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    untried = [row.split("|")[1].strip() for row in rows if "`tests/" not in row.rsplit("|", 2)[1]]
    assert len(rows) > 20
    assert untried == []
