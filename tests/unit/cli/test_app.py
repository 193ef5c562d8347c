"""The command line itself: its version, what a shell completes, and what a slip of the finger is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aetheris.cli.app import PLACES

COMMAND = (str(Path(sys.executable).parent / "aetheris"),)
MODULE = (sys.executable, "-m", "aetheris.cli")


def ran(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "120", **environment}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def completed(line: str, cursor: int) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(cursor), "_AETHERIS_COMPLETE": "complete_bash"}
    return ran(*COMMAND, **words).stdout.split()


@pytest.mark.parametrize("called", [COMMAND, MODULE], ids=["command", "module"])
def test_it_says_its_version_however_it_is_called(called: tuple[str, ...]) -> None:
    shown = ran(*called, "--version")
    assert (shown.returncode, shown.stdout) == (0, "aetheris 0.1.0\n")


def test_help_names_every_command() -> None:
    shown = ran(*COMMAND, "--help").stdout
    assert {line.split()[1] for line in shown.splitlines() if line.startswith("│ ")} >= PLACES.keys()


def test_a_shell_completes_commands_their_own_and_options() -> None:
    assert set(completed("aetheris ", 1)) >= PLACES.keys()
    assert completed("aetheris jobs --st", 2) == ["--status"]
    assert completed("aetheris tools rel", 2) == ["release"]
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # what runs the tests need be no shell
    script = ran(*COMMAND, "--show-completion", "bash", **named)
    assert "_AETHERIS_COMPLETE=complete_bash" in script.stdout


@pytest.mark.parametrize(
    ("reported", "meant"),
    [
        (("jbos",), "Did you mean jobs"),
        (("tools", "relase", "x"), "Did you mean 'release'?"),
        (("jobs", "--statsu", "x"), "--status"),
    ],
)
def test_a_word_that_is_none_is_told_what_looks_like_it(reported: tuple[str, ...], meant: str) -> None:
    shown = ran(*COMMAND, *reported)
    assert (shown.returncode, meant in shown.stderr) == (2, True), shown.stderr


def test_a_word_that_looks_like_nothing_is_refused_all_the_same() -> None:
    shown = ran(*COMMAND, "xyzzy")
    assert (shown.returncode, "No such command 'xyzzy'" in shown.stderr) == (2, True), shown.stderr
