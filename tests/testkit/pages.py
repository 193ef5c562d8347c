"""Commands as pages have them, run as they stand there, in a fresh folder outside the repository."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aetheris.cli.embedded import lifecycle

REPOSITORY = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)


def readme_agent() -> str:
    """The agent of the README, which takes no more than ten lines."""
    readme = (REPOSITORY / "README.md").read_text()
    (agent,) = re.findall(r"## Keep your agent.*?```python\n(.*?)```", readme, re.DOTALL)
    assert len([line for line in agent.splitlines() if line.strip()]) <= 10
    return agent


def commands(page: str) -> str:
    """What stands in the blocks without a language, in order."""
    return "".join(_BLOCK.findall(page))


def run(script: str, folder: Path, within_s: float = 150.0, path: str | None = None) -> str:
    """Run it with this environment's commands or those on the path, ended at the first that fails; what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AETHERIS_", "PYTHON", "PYTEST_"))}
    path = path or f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    argv = ["bash", "-eu", "-o", "pipefail", "-c", script]
    ended = subprocess.run(
        argv, cwd=folder, env=env | {"PATH": path}, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@contextmanager
def left_clean(folder: Path) -> Generator[None]:
    """At the end nothing runs below the folder any more."""
    try:
        yield
    finally:
        for tokens in folder.rglob(".aetheris/tokens.toml"):
            if lifecycle.supervisor_pid(tokens.parent) is not None:
                lifecycle.down(tokens.parent)
