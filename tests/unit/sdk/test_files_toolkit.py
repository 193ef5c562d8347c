"""Files: conditional, whole, below their folder, and confirmed."""

from pathlib import Path

import pytest

from aetheris.sdk import Confirmed, Drifted, Failed, StateChange, ToolContext
from aetheris.sdk.toolkits import files


def ctx(node: str = "n") -> ToolContext:
    return ToolContext(f"aetheris:job-1:{node}:0", 0, "ab" * 32, "job-1", node)


def test_the_same_call_again_is_the_same_effect(tmp_path: Path) -> None:
    first = files.put(ctx(), tmp_path, "a/b.txt", b"one")
    assert files.put(ctx(), tmp_path, "a/b.txt", b"one") == first
    assert (tmp_path / "a/b.txt").read_bytes() == b"one"
    assert isinstance(files.confirm(tmp_path, first), Confirmed)


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"theirs")
    with pytest.raises(Failed):
        files.put(ctx(), tmp_path, "x", b"mine")
    with pytest.raises(Failed):
        files.put(ctx(), tmp_path, "x", b"mine", if_match=files.etag_of(b"other"))
    with pytest.raises(Failed):
        files.delete(ctx(), tmp_path, "x", if_match=files.etag_of(b"other"))
    files.put(ctx(), tmp_path, "x", b"mine", if_match=files.etag_of(b"theirs"))
    assert (tmp_path / "x").read_bytes() == b"mine"


def test_a_try_that_may_have_acted_before_says_nothing_sure(tmp_path: Path) -> None:
    files.put(ctx(), tmp_path, "x", b"one")
    (tmp_path / "x").write_bytes(b"somebody's")
    with pytest.raises(files.FileChanged):
        files.put(ctx(), tmp_path, "x", b"one")
    with pytest.raises(Failed):
        files.put(ctx("other"), tmp_path, "x", b"one")


def test_a_delete_is_done_once_and_confirmed(tmp_path: Path) -> None:
    made = files.put(ctx("a"), tmp_path, "x", b"one")
    gone = files.delete(ctx("b"), tmp_path, "x", if_match=made.etag or "")
    assert files.delete(ctx("b"), tmp_path, "x", if_match=made.etag or "") == gone
    assert isinstance(files.confirm(tmp_path, gone), Confirmed)
    assert files.confirm(tmp_path, made) == Drifted({"etag": {"recorded": made.etag, "found": None}})


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".", "", "link/x", ".aetheris/lock", "x\0y"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(Failed):
        files.put(ctx(), root, name, b"")
    assert isinstance(files.confirm(root, StateChange("file", name, "create")), Drifted)
