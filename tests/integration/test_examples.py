"""The examples' commands run as their pages have them, on one system, in a copy outside the repository."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.testkit import pages
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A copy, with the system that its README starts."""
    folder = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(
        REPOSITORY / "examples", folder, ignore=shutil.ignore_patterns("outside*", ".aetheris", "__pycache__")
    )
    with pages.left_clean(folder):
        pages.run(commands(folder), folder)
        yield folder


def commands(folder: Path) -> str:
    return pages.commands((folder / "README.md").read_text())


def outside(examples: Path, kind: str) -> list[str]:
    """What took effect."""
    return [path.read_text() for path in sorted((examples / "outside" / kind).iterdir())]


def test_a_refund_waits_for_a_yes(examples: Path) -> None:
    assert '"refunded": 42' in pages.run(commands(examples / "refund"), examples)
    assert outside(examples, "payments") == ['{"order": "o-1", "amount": 42}']


def test_an_order_is_paid_once_and_one_that_is_declined_is_told(examples: Path) -> None:
    pages.run(commands(examples / "order"), examples)
    assert outside(examples, "charges") == ["o-9 20\n"]
    sent = {text.splitlines()[-1] for text in outside(examples, "mails")}
    assert sent >= {"Thank you for o-9.", "Declined: the card is not good for that."}


def test_a_mail_is_taken_back(examples: Path) -> None:
    assert "failed" in pages.run(commands(examples / "mail"), examples)
    sent = {text.splitlines()[-1] for text in outside(examples, "mails")}
    assert sent >= {"Dinner on Friday?", "Dinner is off, I am sorry."}


def test_a_model_plans_with_the_tools(examples: Path) -> None:
    wording = pages.run(commands(examples / "agent"), examples)
    assert "completed" in wording
    assert any("You get 42 back." in text for text in outside(examples, "mails"))


def test_an_mcp_server_s_tool_is_called(examples: Path) -> None:
    assert "shelf.put_book" in pages.run(commands(examples / "shelf"), examples)
    assert outside(examples, "books") == ["Emma"]


def test_an_application_reads_what_completed_once(examples: Path) -> None:
    text = pages.run(commands(examples / "topics"), examples)
    assert text.count('"order":"o-7"') == 2  # shown by both runs, kept once
