"""The documentation's site can be built, and each of its links leads somewhere."""

import subprocess
import sys

from tests.testkit.system import REPOSITORY


def test_the_site_is_built_with_no_broken_link() -> None:
    built = subprocess.run(
        [sys.executable, "docs/site/build.py"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    for page in ("index", "reference/cli", "reference/sdk", "reference/events", "packages/ledger"):
        assert (REPOSITORY / "build" / "site" / f"{page}.html").exists()
