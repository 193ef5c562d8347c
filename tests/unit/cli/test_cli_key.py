"""`aetheris key`, and what every command has in common."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import PLACES, app

VECTOR = "b3824f0b4be4066b76451badd44d6753ba23d27114d4f8600236529951b5a817"
CALL = ["key", "--job", "job-1", "--node", "node-1", "--tool", "refund", "--args"]
NOT_FOR_A_KEY = ("aiokafka", "fastapi", "httpx", "pydantic_settings", "cryptography", "jgo", "aetheris.sdk.client")


@pytest.mark.parametrize("args", ['{"amount":100,"order_id":"o-1"}', '{"order_id":"o-1","amount":100.0}'])
def test_the_vector_whatever_the_spelling(args: str) -> None:
    shown = CliRunner().invoke(app, [*CALL, args])
    assert (shown.exit_code, shown.stdout) == (0, f"{VECTOR}\n")


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ('{"amount":9007199254740993}', "/amount"),
        ('{"a":{"b":1,"b":2}}', "/b"),
        ('{"a":NaN}', "--args"),
        ('{"a":"\\ud800"}', "/a"),
        ("[1]", "--args"),
        ("{", "--args"),
    ],
)
def test_what_has_no_canonical_form_is_bad_input_that_names_the_field(args: str, field: str) -> None:
    shown = CliRunner().invoke(app, [*CALL, args, "--json"])
    assert shown.exit_code == 2
    error = json.loads(shown.stdout)["error"]
    assert (error["code"], error["details"]["field"]) == ("invalid_args", field)


def test_a_colon_in_an_id_is_bad_input() -> None:
    shown = CliRunner().invoke(app, ["key", "--job", "a:b", "--node", "n", "--tool", "t"])
    assert (shown.exit_code, "job_id" in shown.stderr) == (2, True)


def test_a_key_loads_nothing_that_it_does_not_need() -> None:
    code = f"""
import sys
from aetheris.cli.app import app
app({[*CALL, "{}"]}, standalone_mode=False)
print([name for name in {NOT_FOR_A_KEY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


SEALS = [f"seals {name}" for name in ("checkpoint", "inclusion", "consistency", "audit", "rotate", "vkey")]
RIGS = ("demo", "chaos", "bench")
"""What aetheris-rigs brings."""
TOKENS = ["token add", "token ls", "token revoke"]
ROOTS = ["root new", "root certify", "root show"]
COMMANDS = [
    *PLACES.keys()
    - {"dlq", "seals", "token", "policy", "rules", "upgrade", "root", "passkey", "witness", "archive"}
    - {"topics"},
    *RIGS,
    "policy test",
    "rules show",
    "upgrade check",
    "rules order",
    "topics show",
    "topics grow",
    "passkey add",
    "witness init",
    "archive delete",
    "dlq ls",
    "dlq show",
    "dlq redrive",
    *SEALS,
    *TOKENS,
    *ROOTS,
]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_says_what_it_does_and_prints_json(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert command in ("demo", "mcp") or "--json" in shown.stdout  # mcp speaks a protocol of its own


def test_unknown_commands_and_options_are_bad_usage() -> None:
    assert CliRunner().invoke(app, ["nope"]).exit_code == 2
    assert CliRunner().invoke(app, ["key", "--nope"]).exit_code == 2
    assert CliRunner().invoke(app, ["demo", "../x"]).exit_code == 2


def test_config_names_a_bad_setting_and_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_REDIS", "redis://me:hush@somewhere/0")
    shown = CliRunner().invoke(app, ["config", "--json"])
    assert "hush" not in shown.stdout
    values = {one["variable"]: one["value"] for one in json.loads(shown.stdout)}
    assert values["AETHERIS_REDIS"] == "redis://me:…@somewhere/0"
    monkeypatch.setenv("AETHERIS_PARTITIONS", "many")
    shown = CliRunner().invoke(app, ["config"])
    assert (shown.exit_code, "AETHERIS_PARTITIONS" in shown.stderr) == (2, True)


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"aetheris {version('aetheris-cli')}\n"


def test_a_word_that_is_no_command_names_those_that_look_like_it() -> None:
    shown = CliRunner().invoke(app, ["aproove"], env={"COLUMNS": "120"})
    assert (shown.exit_code, "Did you mean approve" in shown.stderr) == (2, True)
    assert "Did you mean" not in CliRunner().invoke(app, ["xyzzy"]).stderr


def test_a_shell_completes_commands() -> None:
    asked = {"_AETHERIS_COMPLETE": "complete_bash", "COMP_WORDS": "aetheris appro", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, [], prog_name="aetheris", env=asked).stdout.split() == ["approvals", "approve"]
