"""`aetheris init` writes a project whose README's commands run as they stand there."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from tests.testkit import pages

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]


def test_the_commands_of_its_readme_run_in_a_fresh_folder(tmp_path: Path) -> None:
    pages.run("aetheris init shop", tmp_path)
    shop = tmp_path / "shop"
    with pages.left_clean(shop):
        text = pages.run(pages.commands((shop / "README.md").read_text()), shop)
    assert "1 passed" in text
    assert '"refunded": 42' in text
    assert [json.loads(path.read_text())["amount"] for path in (shop / "outside").iterdir()] == [42]


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("mine")
    shown = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert (shown.exit_code, "plan.json" in shown.stderr) == (2, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "mine")]
