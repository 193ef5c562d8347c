"""The test on the page about testing is a test that passes."""

import re
import subprocess
import sys
from pathlib import Path

from tests.testkit.system import REPOSITORY


def test_the_page_s_own_test_passes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "testing.md").read_text()
    (tmp_path / "test_letter.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
