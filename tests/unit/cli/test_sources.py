"""Which files an executor in the foreground is started anew for."""

import os
from pathlib import Path

import pytest

from aetheris.cli.embedded.imports import files_of
from aetheris.cli.embedded.sources import Sources


def test_what_a_module_imports_at_any_remove_and_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk").mkdir()
    for name, text in (("shop", "import desk.prices\n"), ("desk/prices", "from . import rates\n"), ("desk/rates", "")):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "desk" / "unused.py").touch()
    sources = Sources(["shop"])
    assert sources.changed() == []
    for change, seen in (
        ("desk/rates.py", ["rates.py"]),
        ("desk/unused.py", []),
        ("beside.py", ["beside.py"]),
        ("shop.py", ["shop.py"]),
    ):
        _write(tmp_path / change, "")
        assert sources.changed() == seen, change
        assert sources.changed() == []
    _write(tmp_path / "desk" / "prices.py", "")
    assert sources.changed() == [], "nobody imports it any more"
    _write(tmp_path / "shop.py", "from desk import unused\n")
    assert sources.changed() == ["shop.py"]
    _write(tmp_path / "desk" / "unused.py", "x = 1\n")
    assert sources.changed() == ["unused.py"]


def test_modules_are_looked_for_where_the_services_will_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text("import prices\n")
    (tmp_path / "prices.py").touch()
    assert files_of("shop") == []
    monkeypatch.setenv("AETHERIS_TOOLS_FOLDER", str(tmp_path))
    assert files_of("shop") == [tmp_path / "shop.py", tmp_path / "prices.py"]


def _write(path: Path, text: str) -> None:
    """However coarse the clock of the file system is, it is another time."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))
