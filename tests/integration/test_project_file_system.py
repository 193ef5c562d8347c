"""`up` with another policy than what runs: refused by name; after a restart it is in force, from below too."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.testkit import pages

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(400)]

TOOLS = """
from pathlib import Path

from aetheris.sdk import Result, ToolContext, tool


@tool(effect_class="opaque", irreversible=True)
def pay(ctx: ToolContext, tag: str) -> Result:
    (Path(__file__).parent / tag).touch()
    return Result({"paid": tag}, external_id=tag)
"""
RULE = '[[rules]]\nname = "{effect}-all"\ntools = ["*"]\neffect = "{effect}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    (tmp_path / "shop.py").write_text(TOOLS)
    for effect in ("deny", "allow"):
        (tmp_path / f"{effect}.toml").write_text(RULE.format(effect=effect))
    _write(tmp_path, "deny")
    (tmp_path / "below").mkdir()
    with pages.left_clean(tmp_path):
        yield tmp_path


def _write(folder: Path, effect: str) -> None:
    (folder / "aetheris.toml").write_text(f'tools = ["shop"]\npolicy = "{effect}.toml"\n')


def _aetheris(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """In a shell that has no setting of ours but these."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    argv = [sys.executable, "-P", "-m", "aetheris.cli", *command]
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=150, check=False, env={**base, **env}
    )


def _paid(folder: Path, tag: str) -> bool:
    """Whether a job that pays came to it, submitted and awaited in a folder below."""
    plan = folder / f"{tag}.json"
    plan.write_text(f'{{"nodes": [{{"id": "a", "kind": "tool", "tool": "pay", "args": {{"tag": "{tag}"}}}}]}}')
    done = _aetheris(folder / "below", "submit", str(plan), "--wait", "60")
    assert done.returncode == (0 if (folder / tag).exists() else 1), done.stderr
    return (folder / tag).exists()


def _pid(folder: Path) -> str:
    return (folder / ".aetheris" / "supervisor.lock").read_text()


def test_another_policy_is_refused_by_name_and_holds_after_a_restart(folder: Path) -> None:
    first = _aetheris(folder / "below", "up")
    assert first.returncode == 0, first.stderr
    assert re.search(rf"policy +{re.escape(str(folder))}/deny.toml: 1 rules \(.*aetheris.toml:2\)", first.stderr)
    assert (folder / ".aetheris").exists()
    assert not _paid(folder, "denied")

    _write(folder, "allow")
    runs = _pid(folder)
    refused = _aetheris(folder, "up")
    assert (refused.returncode, _pid(folder)) == (1, runs), refused.stderr
    assert f"policy was {folder}/deny.toml, and is {folder}/allow.toml now (aetheris.toml:2)" in refused.stderr
    assert "`aetheris up --restart`" in refused.stderr
    assert not _paid(folder, "still-denied")

    again = _aetheris(folder / "below", "up", "--restart")
    assert (again.returncode, _pid(folder) != runs) == (0, True), again.stderr
    assert _paid(folder, "allowed")
    assert _aetheris(folder / "below", "up").returncode == 0

    runs = _pid(folder)
    other = _aetheris(folder / "below", "up", AETHERIS_POLICY="../deny.toml")
    assert (other.returncode, _pid(folder)) == (1, runs)
    assert f"is {folder}/deny.toml now (AETHERIS_POLICY)" in other.stderr


def test_a_restart_that_would_be_refused_ends_nothing(folder: Path) -> None:
    assert _aetheris(folder, "up").returncode == 0
    runs = _pid(folder)
    (folder / "aetheris.toml").write_text('polcy = "deny.toml"\n')
    refused = _aetheris(folder, "up", "--restart")
    assert (refused.returncode, _pid(folder)) == (78, runs)
    assert "aetheris.toml:1: polcy: there is no such key; did you mean policy?" in refused.stderr


def test_no_file_of_the_folder_stands_for_what_is_installed(folder: Path) -> None:
    """The services start in the project's folder; who can write there is not to run in the ledger or the gateway."""
    _write(folder, "allow")
    for name in ("structlog", "uvloop", "aiokafka", "httpx", "redis", "tomllib", "sitecustomize", "encodings"):
        (folder / f"{name}.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n")
    up = _aetheris(folder, "up")
    assert up.returncode == 0, up.stderr
    assert _paid(folder, "once")
    assert list(folder.glob("*.ran")) == []
