"""`aetheris mcp discover` in the files of other clients, and back to the byte (docs/mcp.md)."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app

STDIO = {"command": "mcp-server-files", "args": ["/srv"], "env": {"TOKEN": "s3cret"}}
HTTP = {"type": "http", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer s3cret"}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AETHERIS_MCP", raising=False)
    return tmp_path


def discovered(*argv: str, ends: int = 0) -> dict[str, str]:
    done = CliRunner().invoke(app, ["mcp", "discover", "--json", *argv])
    assert done.exit_code == ends, done.output
    return (
        {one["server"]: one["state"] for one in json.loads(done.stdout)["servers"]} if not ends else {"": done.output}
    )


def servers_of(path: Path, key: str = "mcpServers") -> dict[str, Any]:
    return json.loads(path.read_text())[key]


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (".mcp.json", "mcpServers"),
        (".cursor/mcp.json", "mcpServers"),
        (".vscode/mcp.json", "servers"),
        ("claude_desktop_config.json", "mcpServers"),
    ],
)
def test_the_proxy_is_put_before_every_server_once_and_taken_back_to_the_byte(here: Path, place: str, key: str) -> None:
    file = here / place
    file.parent.mkdir(exist_ok=True)
    text = json.dumps({"other": [1, "\u00e9"], key: {"files": STDIO, "tracker": HTTP}}, indent=7)
    file.write_text(text)
    file.chmod(0o640)
    assert discovered("--run", "r-1") == {"files": "proxied", "tracker": "proxied"}
    once = file.read_text()
    found = servers_of(file, key)
    assert found["tracker"]["command"] == "aetheris"
    assert found["tracker"]["args"][:3] == ["mcp", "proxy", "tracker"]
    assert found["files"]["args"][-2:] == ["--run", "r-1"]
    assert "s3cret" not in once
    assert json.loads(once)["other"] == [1, "\u00e9"]
    moved = servers_of(here / "servers.json")
    assert {name: moved["files"][name] for name in STDIO} == STDIO
    assert moved["tracker"] == HTTP
    assert [(here / one).stat().st_mode & 0o777 for one in (place, "servers.json")] == [0o640, 0o600]
    assert discovered() == {"files": "was_proxied", "tracker": "was_proxied"}
    assert file.read_text() == once
    assert discovered("--undo") == {"files": "restored", "tracker": "restored"}
    assert file.read_text() == text
    assert servers_of(here / "servers.json") == {}
    assert discovered("--undo") == {}
    assert file.read_text() == text


def test_what_was_changed_since_stays_when_it_is_taken_back(here: Path) -> None:
    file = here / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"files": STDIO}}))
    discovered()
    content = json.loads(file.read_text())
    content["mcpServers"]["later"] = HTTP
    file.write_text(json.dumps(content))
    assert discovered() == {"files": "was_proxied", "later": "proxied"}
    content = json.loads(file.read_text())
    content["mcpServers"]["mine"] = {"command": "x", "args": []}
    file.write_text(json.dumps(content))
    declared = json.loads((here / "servers.json").read_text())
    declared["mcpServers"]["files"]["annotations"] = "trusted"
    (here / "servers.json").write_text(json.dumps(declared))
    assert discovered("--undo") == {"files": "restored", "later": "restored"}
    assert servers_of(file) == {"files": STDIO, "later": HTTP, "mine": {"command": "x", "args": []}}
    assert list(servers_of(here / "servers.json")) == ["files"], "what was declared here is not thrown away"


@pytest.mark.parametrize(
    ("name", "entry", "why"),
    [
        ("a", {"type": "sse", "url": "https://x.example/sse"}, "sse is no transport"),
        ("a", {"type": "http", "url": "https://x.example", "headers": {"A": "${TOKEN}"}}, "${…}"),
        ("a", {"command": "x", "args": ["${input:key}"]}, "${…}"),
        ("a", {"command": "x", "url": "https://x.example"}, "either command or url"),
        ("a", "x", "no server"),
        ("a b", STDIO, "name"),
        ("held", {"command": "another"}, "has another server of that name"),
        ("ours", {"command": "/opt/bin/aetheris", "args": ["mcp", "--data", "d"]}, "was_proxied"),
    ],
)
def test_what_it_can_not_stand_before_stays_and_is_named(here: Path, name: str, entry: Any, why: str) -> None:
    (here / "servers.json").write_text(json.dumps({"mcpServers": {"held": STDIO}}))
    text = json.dumps({"mcpServers": {name: entry}})
    (here / ".mcp.json").write_text(text)
    assert why in discovered()[name]
    assert (here / ".mcp.json").read_text() == text
    assert not (here / ".mcp.json.before-aetheris").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "not readable as JSON"), ("// a comment\n{}", "comments"), ("[]", "no mcpServers"), ("{}", "no mcpServers")],
)
def test_a_file_that_can_not_be_read_is_named_and_nothing_is_written(here: Path, text: str, why: str) -> None:
    (here / ".mcp.json").write_text(text)
    (here / "b.json").write_text(json.dumps({"mcpServers": {"files": STDIO}}))
    assert why in discovered("b.json", ".mcp.json", ends=2)[""]
    assert sorted(one.name for one in here.iterdir()) == [".mcp.json", "b.json"]


def test_no_file_is_no_silence(here: Path) -> None:  # noqa: ARG001
    assert "no file of MCP servers" in discovered(ends=2)[""]
