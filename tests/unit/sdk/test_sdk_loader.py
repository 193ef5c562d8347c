"""Finding tools by module name and by entry point (docs/tools.md)."""

import importlib
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from aetheris.sdk import loader
from aetheris.sdk.loader import ToolboxError, UnknownTool, load

HEAD = "from aetheris.sdk import tool\n"
LOOK = "@tool(effect_class='pure')\ndef look(order_id: str) -> None: ...\n"


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
    write(
        written,
        "second_tools",
        "from first_tools import look\n@tool(version='2', effect_class='pure')\ndef poke() -> None: ...\n",
    )
    box = load("first_tools, second_tools,")
    assert [entry["name"] for entry in box.entries()] == ["look", "poke"]
    assert box.get("look", "1").name == "look"
    assert len(box) == len(list(box)) == 2
    with pytest.raises(UnknownTool, match="poke@1"):
        box.get("poke", "1")


def test_the_same_name_twice_is_an_error_that_names_both(written: Path) -> None:
    write(written, "first_tools", LOOK)
    write(written, "second_tools", LOOK.replace("order_id", "order"))
    places = r"second_tools\.py:2: declares look@1 with another schema, and so does .*first_tools\.py:2: give"
    with pytest.raises(ToolboxError, match=places):
        load("first_tools,second_tools")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("", "has no tools"),
        ("raise RuntimeError('hunter2')", "cannot be imported: RuntimeError$"),
        ("@tool(effect_class='probeable')\ndef send() -> None: ...\n", "has no probe"),
        ("@tool(effect_class='pure')\ndef send(*args: int) -> None: ...\n", "args must be an argument"),
    ],
)
def test_an_error_names_the_file_and_the_line(written: Path, body: str, rule: str) -> None:
    write(written, "bad_tools", body)
    with pytest.raises(ToolboxError, match=rf"bad_tools(\.py:2)?: .*{rule}"):
        load("bad_tools")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(ToolboxError, match=r"^no_such_tools: there is no module no_such_tools in this folder"):
        load("no_such_tools")


def test_what_a_module_imports_in_vain_is_named_where_it_stands(written: Path) -> None:
    write(written, "needy_tools", "\nimport no_such_library\n")
    with pytest.raises(ToolboxError, match=r"needy_tools\.py:3: .*No module named 'no_such_library'"):
        load("needy_tools")


def test_an_annotation_that_means_nothing_is_named_with_the_tool(written: Path) -> None:
    (written / "odd_tools.py").write_text(
        "from __future__ import annotations\n" + HEAD + "@tool(effect_class='pure')\ndef look(order: Nothing): ...\n"
    )
    with pytest.raises(ToolboxError, match=r"odd_tools\.py:3: look@1: an annotation can't be read: name 'Nothing'"):
        load("odd_tools")


def test_a_second_function_of_one_name_is_refused_but_a_module_may_be_loaded_again(written: Path) -> None:
    write(written, "twice_tools", LOOK + LOOK.replace("order_id", "order"))
    with pytest.raises(ToolboxError, match=r"twice_tools\.py:4: look@1: a second function .*; the first, in line 2,"):
        load("twice_tools")
    write(written, "again_tools", LOOK)
    load("again_tools")
    again = importlib.reload(sys.modules["again_tools"])
    assert again.look.key == "look@1"


@pytest.mark.parametrize(
    ("declared", "rule"),
    [
        ("@tool", r"bad_tools\.py:2: look: write @tool\(…\), and say what is known"),
        ("@tool()", r"bad_tools\.py:2: look@1: say what .*'pure' .*'idempotent' .*'probeable' .*'opaque'"),
        ("@tool(effect_class='opaque')", r"bad_tools\.py:2: look@1: .*irreversible=True .*irreversible=False"),
        (
            "@tool(effect_class='opaque', irreversible=True)",
            r"bad_tools\.py:2: look@1: is irreversible, so .*external_id",
        ),
    ],
)
def test_what_a_tool_does_must_be_said(written: Path, declared: str, rule: str) -> None:
    write(written, "bad_tools", f"{declared}\ndef look() -> None: ...\n")
    with pytest.raises(ToolboxError, match=rule):
        load("bad_tools")


def test_everything_wrong_is_found_at_once(written: Path) -> None:
    write(written, "first_tools", LOOK)
    write(written, "broken_tools", "def look(:\n")
    write(written, "mute_tools", "@tool(effect_class='probeable')\ndef send() -> None: ...\n" + LOOK)
    toolbox, faults = loader.examine("first_tools,broken_tools,mute_tools,nowhere_tools")
    assert [tool.key for tool in toolbox] == ["look@1"]
    found = [str(fault) for fault in faults]
    for part in (
        "broken_tools.py:2",
        "mute_tools.py:2: send@1: is probeable",
        "mute_tools.py:4: declares",
        "nowhere_tools",
    ):
        assert sum(part in one for one in found) == 1, (part, found)


@pytest.mark.parametrize("value", ["entry_tools", "entry_tools:look", "entry_tools:all_tools"])
def test_entry_points(written: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    write(written, "entry_tools", LOOK + "all_tools = [look]\n")
    points = [EntryPoint("shop", value, loader.GROUP)]
    monkeypatch.setattr(loader, "entry_points", lambda group: points if group == loader.GROUP else [])
    assert [tool.key for tool in load()] == ["look@1"]
