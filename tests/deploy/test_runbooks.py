"""Each alert has its page, each page its alert, and every command that a page names can be given so."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from aetheris.cli.app import app
from tests.testkit.prometheus import RULES
from tests.testkit.system import REPOSITORY

PAGES = REPOSITORY / "docs" / "runbooks"
INDEX = "index.md"
_COMMAND = re.compile(r"(?:^|`)(aetheris [^`\n]+?)(?:`|$)", re.MULTILINE)


def alerts() -> dict[str, dict[str, str]]:
    """Name → annotations."""
    groups = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}


def commands(text: str) -> list[str]:
    """What is to be typed: lines of blocks, and what stands in backticks."""
    return _COMMAND.findall(text)


def parsed(command: str) -> None:
    """As the command line takes it, up to where it would do something.

    Raises:
        Exception: there is no such command, option or argument, or one is missing.
    """
    found, words, above = typer.main.get_command(app), shlex.split(command)[1:], None
    while True:
        name = words[0] if above is not None and words else "aetheris"
        context = found.make_context(name, list(words), parent=above)
        if not hasattr(found, "resolve_command"):
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        _, found, words = found.resolve_command(context, rest)  # pyright: ignore[reportAttributeAccessIssue]
        above = context
        assert found is not None


def test_each_alert_names_its_page_and_each_page_has_an_alert() -> None:
    named = {alert: said["runbook_url"] for alert, said in alerts().items()}
    pages = {f"docs/runbooks/{page.name}" for page in PAGES.glob("*.md") if page.name != INDEX}
    assert set(named.values()) == pages
    assert len(set(named.values())) == len(named), "each its own"
    listed = (PAGES / INDEX).read_text()
    for alert, page in named.items():
        text = (REPOSITORY / page).read_text()
        assert text.startswith(f"# {alert}\n")
        assert [f"## {part}" in text for part in ("What it means", "Look at", "Do")] == [True] * 3
        assert f"[{alert}]({page.removeprefix('docs/runbooks/')})" in listed


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_every_command_that_a_page_names_can_be_given(page: Path) -> None:
    text = page.read_text()
    found = commands(text)
    assert found or "index" in str(page)
    for command in found:
        parsed(command)


@pytest.mark.parametrize(
    "wrong",
    ["aetheris heal ID", "aetheris jobs --sort-by-luck", "aetheris resolve ID", "aetheris dlq eat", "aetheris verify"],
)
def test_one_that_cannot_be_given_is_seen(wrong: str) -> None:
    assert commands(f"```\n{wrong}\n```\n") == commands(f"Say `{wrong}`.") == [wrong]
    with pytest.raises(Exception, match=r"No such|Missing|required|Got unexpected"):
        parsed(wrong)
