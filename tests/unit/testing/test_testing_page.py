"""The tests on the page about testing are tests that pass."""

import re
import subprocess
import sys
from pathlib import Path

from tests.testkit.system import REPOSITORY


def test_the_page_s_own_tests_pass(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "testing.md").read_text()
    letter, workflow = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_letter.py").write_text(letter)
    (tmp_path / "test_payment.py").write_text(workflow)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
