"""The tutorial's commands, run one after another as the page has them, in a fresh folder outside the repository."""

from pathlib import Path

import pytest

from tests.testkit import pages
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text()
    with pages.left_clean(tmp_path):
        said = pages.run(pages.commands(page), tmp_path)
    assert "1 passed" in said
    assert '"refunded": 42' in said
    assert "letter is parked" in said
    assert "worker_ended" in said
    assert "executor-0 exited with -9" in said
    assert sorted(path.name.split("_")[0] for path in (tmp_path / "shop" / "outside").iterdir()) == [
        "aetheris",
        "letter",
    ]
