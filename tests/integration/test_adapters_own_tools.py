"""Tools that an agent has under the names of its run are shown, and never run (docs/adapters.md)."""

import json
import os
import subprocess

import pytest

from tests.testkit.framework_agents import SOURCES, framework_python
from tests.testkit.played_gateway import running_played_gateway
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("name", "script"), [("langchain", "own_tools_langchain.py"), ("google_adk", "own_tools_adk.py")]
)
def test_an_agent_s_own_tool_is_not_run_and_all_others_are(name: str, script: str) -> None:
    argv = [str(framework_python(name)), str(REPOSITORY / "tests" / "adapters" / name / script)]
    with running_played_gateway() as gateway:
        gateway.released.set()
        env = {"AETHERIS_URL": gateway.url, "AETHERIS_TOKEN": "t", "PYTHONPATH": os.pathsep.join(SOURCES)}
        done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert lines
    assert all(line == [['{"refunded": 5}', "hello"], ["greet ann"]] for line in lines), lines
    assert len(gateway.effects) == 1
