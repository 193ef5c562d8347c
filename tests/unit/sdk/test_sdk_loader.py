"""Finding tools by module name and by entry point (docs/tools.md)."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from aetheris.sdk import loader
from aetheris.sdk.loader import ToolboxError, UnknownTool, load

HEAD = "from aetheris.sdk import tool\n"
LOOK = "@tool()\ndef look(order_id: str) -> None: ...\n"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path; modules that were imported from it are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text(HEAD + body)


def test_modules_by_name(written: Path) -> None:
    write(written, "first_tools", LOOK)
    write(written, "second_tools", "from first_tools import look\n@tool(version='2')\ndef poke() -> None: ...\n")
    box = load("first_tools, second_tools,")
    assert [entry["name"] for entry in box.entries()] == ["look", "poke"]
    assert box.get("look", "1").name == "look"
    assert len(box) == len(list(box)) == 2
    with pytest.raises(UnknownTool, match="poke@1"):
        box.get("poke", "1")


def test_the_same_name_twice_is_an_error_that_names_both(written: Path) -> None:
    write(written, "first_tools", LOOK)
    write(written, "second_tools", LOOK.replace("order_id", "order"))
    with pytest.raises(ToolboxError, match="second_tools: declares look@1 with another schema, and so does first_"):
        load("first_tools,second_tools")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("", "has no tools"),
        ("raise RuntimeError('hunter2')", r"cannot be imported \(RuntimeError\)"),
        ("@tool(effect_class='probeable')\ndef send() -> None: ...\n", "has no probe"),
        ("@tool()\ndef send(*args: int) -> None: ...\n", "args must be an argument"),
    ],
)
def test_an_error_names_the_module(written: Path, body: str, rule: str) -> None:
    write(written, "bad_tools", body)
    with pytest.raises(ToolboxError, match=f"^bad_tools: .*{rule}"):
        load("bad_tools")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(ToolboxError, match=r"^no_such_tools: cannot be imported \(ModuleNotFoundError\)"):
        load("no_such_tools")


@pytest.mark.parametrize("value", ["entry_tools", "entry_tools:look", "entry_tools:all_tools"])
def test_entry_points(written: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    write(written, "entry_tools", LOOK + "all_tools = [look]\n")
    points = [EntryPoint("shop", value, loader.GROUP)]
    monkeypatch.setattr(loader, "entry_points", lambda group: points if group == loader.GROUP else [])
    assert [tool.key for tool in load()] == ["look@1"]
