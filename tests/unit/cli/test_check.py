"""`aetheris check`, and what `up` says of the same faults: where each is, and that nothing was started."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from aetheris.cli.project_faults import checked

OK = """
from aetheris.sdk import tool


@tool(effect_class="pure")
async def look(name: str) -> dict[str, str]:
    print("looked")
    return {"name": name}


print("imported")
"""
PROBE = "from aetheris.sdk import tool\n\n@tool(effect_class='probeable')\nasync def send(to: str) -> dict: ...\n"
UNTRACEABLE = (
    "from aetheris.sdk import tool\n\n\n@tool(effect_class='idempotent', irreversible=True)\n"
    "async def pay(to: str) -> dict: ...\n"
)
LOADED = {"tools": "shop: 1 tools", "policy": "none: what can't be undone needs a human's approval"}
RULE = '[[rules]]\nname = "a"\ntools = ["{tool}"]\n{effect} = "allow"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, outside of the repository."""
    (tmp_path / "shop.py").write_text(OK)
    return tmp_path


def aetheris(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith("AETHERIS_")}
    argv = [sys.executable, "-P", "-m", "aetheris.cli", *command]  # as the script: the folder is not on its path
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env={**base, **env}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_what_is_right_is_told_and_what_a_module_prints_is_no_result(folder: Path) -> None:
    done = aetheris(folder, "check", "--json", AETHERIS_TOOLS="shop")
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        {"faults": [], "loaded": LOADED, "from": {"tools": "AETHERIS_TOOLS"}},
    )
    assert "imported" in done.stderr


UNREADABLE = '[[secrets]]\nname = "a@1"\nenvv = "X"\n'
MODEL = '[[models]]\nname = "a"\nmodl = "x:y"\n'
SERVER = '{"mcpServers": {\n"a": {\n"comand": "x"}}}'
ENDS = "import sys\nsys.exit(3)\n"
NEEDS = "import os\nos.environ['NO_SUCH']\n"


@pytest.mark.parametrize(
    ("variable", "name", "text", "wording"),
    [
        (
            "TOOLS",
            "bad.py",
            "import no_such_thing\n",
            "bad.py:1: bad cannot be imported: ModuleNotFoundError: No",
        ),
        ("TOOLS", "bad.py", "def look(:\n", "bad.py:1: bad cannot be imported: SyntaxError"),
        ("TOOLS", "bad.py", NEEDS, "bad.py:2: bad cannot be imported: KeyError: 'NO_SUCH'"),
        ("TOOLS", "bad.py", "raise ValueError('hunter2')\n", "bad.py:1: bad cannot be imported: ValueError"),
        ("TOOLS", "bad.py", ENDS, "bad.py:2: bad cannot be imported: SystemExit"),
        ("TOOLS", "bad.py", PROBE, "bad.py:3: send@1: is probeable, but has no probe: add @send.probe"),
        ("TOOLS", "bad.py", UNTRACEABLE, "bad.py:4: pay@1: is irreversible, so its effect must be traceable"),
        ("TOOLS", "bad.py", "import math\n", "bad: has no tools"),
        (
            "POLICY",
            "p.toml",
            RULE.format(tool="look", effect="efect"),
            "p.toml:4: rule 'a': efect: there is no such key",
        ),
        ("POLICY", "p.toml", "rules = x\n", "p.toml:1: the policy is not TOML"),
        ("POLICY", "p.toml", RULE.format(tool="lok", effect="effect"), "there is no tool lok; did you mean look?"),
        ("POLICY", "gone.toml", None, "gone.toml: No such file"),
        ("SECRETS", "s.toml", UNREADABLE, "s.toml:3: secrets.0.envv: there is no such key"),
        ("SECRETS", "s.toml", "[[secrets]]\nname = hunter2\n", "s.toml:2: not readable as TOML"),
        ("MODELS", "m.toml", MODEL, "m.toml:3: models[0]: modl: there is no such key"),
        ("MODELS", "fast", None, "model: must be provider:model"),
        ("MCP", "m.json", SERVER, "m.json:3: mcpServers.a: comand: there is no such key; did you mean command?"),
        ("MCP", "m.json", '{"mcpServers": {\n', "m.json:2: not readable as JSON"),
        ("HTTP_PORT", "hunter2", None, "AETHERIS_HTTP_PORT"),
    ],
)
def test_a_fault_is_said_with_its_place(
    *, folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, name: str, text: str | None, wording: str
) -> None:
    if text is not None:
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "modules", {one: held for one, held in sys.modules.items() if one not in ("bad", "shop")})
    monkeypatch.setenv("AETHERIS_TOOLS", "shop")
    monkeypatch.setenv(f"AETHERIS_{variable}", name.removesuffix(".py"))
    (fault,) = checked().faults
    assert wording in fault.detail
    assert "hunter2" not in fault.detail


STARTS = "import threading\nthreading.Thread(target=threading.Event().wait, name='sends', daemon=True).start()\n"
BRIEF = "import threading\none = threading.Thread(target=str)\none.start()\none.join()\n"


@pytest.mark.parametrize("isolation", ["process", "none"])
@pytest.mark.parametrize(
    ("text", "place"), [(STARTS + OK, "bad.py:2"), ("\nimport starts" + OK, "bad.py:2"), (BRIEF + OK, None)]
)
def test_a_thread_from_a_modules_import_is_named_where_calls_fork_beside_it(
    *, folder: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, text: str, place: str | None
) -> None:
    (folder / "starts.py").write_text(STARTS)
    (folder / "bad.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    kept = {one: held for one, held in sys.modules.items() if one not in ("bad", "starts")}
    monkeypatch.setattr(sys, "modules", kept)
    monkeypatch.setenv("AETHERIS_TOOLS", "bad")
    monkeypatch.setenv("AETHERIS_TOOL_ISOLATION", isolation)
    faults = checked().faults
    assert [fault.detail.split(": ")[0] for fault in faults] == ([place] if place and isolation == "process" else [])
    assert not any(fault.stops for fault in faults)


def test_check_says_each_in_a_line(folder: Path) -> None:
    (folder / "p.toml").write_text("[[rules]\n")
    done = aetheris(folder, "check", AETHERIS_TOOLS="shop,nowhere", AETHERIS_POLICY="p.toml")
    assert (done.returncode, [line.split()[:2] for line in done.stdout.splitlines()]) == (
        1,
        [["tools", "✗"], ["policy", "✗"]],
    )


def test_up_names_all_of_them_and_starts_nothing(folder: Path) -> None:
    (folder / "p.toml").write_text(RULE.format(tool="look", effect="efect"))
    (folder / "bad.py").write_text(PROBE)
    done = aetheris(folder, "up", AETHERIS_TOOLS="shop,bad", AETHERIS_POLICY="p.toml")
    assert done.returncode == 78
    assert "bad.py:3: send@1" in done.stderr
    assert "p.toml:4: rule 'a'" in done.stderr
    assert not (folder / ".aetheris").exists()


def test_doctor_looks_at_them_too(folder: Path) -> None:
    done = aetheris(folder, "doctor", AETHERIS_TOOLS="nowhere")
    assert done.returncode == 1
    assert "nowhere: there is no module nowhere" in done.stdout
    assert "signatures of records don't stop a hostile tool" in done.stdout
    apart = aetheris(folder, "doctor", AETHERIS_TOOL_ISOLATION="process", AETHERIS_TOOL_USER="nobody")
    assert "tools run as nobody, who can't read them" in apart.stdout
    mine = pwd.getpwuid(os.geteuid()).pw_name
    same = aetheris(folder, "doctor", AETHERIS_TOOL_ISOLATION="process", AETHERIS_TOOL_USER=mine)
    assert "don't stop a hostile tool" in same.stdout
    assert "hostile" not in aetheris(folder, "doctor", AETHERIS_TOOL_ISOLATION="thread").stdout
