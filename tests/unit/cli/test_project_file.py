"""`aetheris.toml`: each mistake in a sentence with its line, what beats what, and what differs from a former start."""

import json
import os
from pathlib import Path

import pytest

from aetheris.cli.embedded.environment import alone
from aetheris.cli.given import given
from aetheris.cli.project_file import LARGEST_BYTES, ProjectFileInvalid, project
from aetheris.runtime.base.refusal import SettingInvalid
from aetheris.runtime.process.settings import ToolSettings, load
from tests.unit.cli.test_check import OK, aetheris

VARIABLES = ("TOOLS", "POLICY", "SECRETS", "MCP", "MODELS", "CONFIG", "REDIS", "LEASE_TTL_S", "DATA")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, outside of the repository, with nothing in the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(f"AETHERIS_{name}", raising=False)
    (tmp_path / "shop.py").write_text(OK)
    (tmp_path / "policy.toml").write_text('[[rules]]\nname = "a"\ntools = ["*"]\neffect = "allow"\n')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "aetheris.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ('tool = ["shop"]', "aetheris.toml:1: tool: there is no such key; did you mean tools?"),
        ('\n[policy]\nfile = "x"', "aetheris.toml:2: policy: must be the path of a file or folder, in quotes"),
        ('[aetheris]\ntools = ["shop"]', "aetheris.toml:1: aetheris: there is no such key; there are data, exec"),
        ('tools = "shop"', 'aetheris.toml:1: tools: must be a list of strings, such as ["shop.tools"]'),
        ("tools = [1]", "aetheris.toml:1: tools: must be a list of strings"),
        (
            'tools = ["shop/tools.py"]',
            "aetheris.toml:1: tools: shop/tools.py is a file, and a module is named as in an import;"
            " did you mean shop.tools?",
        ),
        ('tools = ["a b"]', "aetheris.toml:1: tools: a b is not the name of a module"),
        ('tools = ["a,b"]', "aetheris.toml:1: tools: holds an entry that is empty, or has a comma"),
        ('models = [""]', "aetheris.toml:1: models: holds an entry that is empty"),
        ("policy = true", "aetheris.toml:1: policy: must be the path of a file"),
        ('policy = ""', "aetheris.toml:1: policy: must be the path of a file"),
        (
            'tools = ["shop"]\npolicy = "polcy.toml"',
            "aetheris.toml:2: policy: there is no file polcy.toml; did you mean policy.toml?",
        ),
        ('policy = "below"', "aetheris.toml:1: policy: there is no file below"),
        ('secrets = "gone/s.toml"', "aetheris.toml:1: secrets: there is no file gone/s.toml"),
        ('mcp = "gone.json"', "aetheris.toml:1: mcp: there is no file gone.json"),
        ('models = ["a:b", "gone.toml"]', "aetheris.toml:1: models: there is no file gone.toml"),
        ('tool_isolation = "thread"', 'aetheris.toml:1: tool_isolation: must be "none" or "process"'),
        ('tool_env = ["AETHERIS_REDIS"]', "aetheris.toml:1: tool_env: AETHERIS_REDIS is a setting of ours"),
        ("executors = 17", "aetheris.toml:1: executors: must be a number from 0 to 16"),
        ("executors = true", "aetheris.toml:1: executors: must be a number from 0 to 16"),
        ('tools = ["shop"\npolicy = 1', "aetheris.toml:2: is not TOML: "),
        ('policy = "a"\npolicy = "b"\n', "aetheris.toml:2: is not TOML: Cannot overwrite a value"),
        (f"executors = {'9' * 5000}", "aetheris.toml: is not TOML: "),
        ("tools = " + "[" * 100_000, "aetheris.toml: is nested too deeply"),
        ("#" * (LARGEST_BYTES + 1), "aetheris.toml: is larger than 256 KiB"),
    ],
    ids=range(25),
)
def test_a_mistake_is_a_sentence_with_its_place(folder: Path, text: str, wording: str) -> None:
    write(folder, text)
    with pytest.raises(ProjectFileInvalid) as refused:
        project()
    (fault,) = refused.value.faults
    assert wording in fault


def test_all_mistakes_are_told_by_check_and_up_starts_nothing(folder: Path) -> None:
    write(folder, 'tool = ["shop"]\nexecutors = "two"\n')
    checked = aetheris(folder, "check", "--json")
    faults = [one["detail"] for one in json.loads(checked.stdout)["faults"]]
    assert (checked.returncode, [one.split(":")[2].strip() for one in faults]) == (1, ["executors", "tool"])
    up = aetheris(folder, "up")
    assert (up.returncode, "aetheris.toml:1: tool" in up.stderr, (folder / ".aetheris").exists()) == (78, True, False)


@pytest.mark.parametrize("command", ["jobs", "doctor", "config", "worker"])
def test_no_command_goes_on_beside_a_file_that_cant_be_read(folder: Path, command: str) -> None:
    write(folder, "tools = [")
    done = aetheris(folder, command, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (78, "project_file_invalid")


def test_no_utf8_is_no_toml(folder: Path) -> None:
    (folder / "aetheris.toml").write_bytes(b"# \xff")
    with pytest.raises(ProjectFileInvalid, match="no UTF-8"):
        project()


def test_a_folder_of_that_name_is_no_file(folder: Path) -> None:
    (folder / "aetheris.toml").mkdir()
    with pytest.raises(ProjectFileInvalid, match=r"aetheris\.toml: Is a directory"):
        project()


def test_a_file_that_is_named_must_be_there(folder: Path) -> None:
    with pytest.raises(ProjectFileInvalid, match=r"other\.toml: there is no such file"):
        project(Path("other.toml"))
    done = aetheris(folder, "check", "--config", "other.toml")
    assert (done.returncode, "other.toml: there is no such file" in done.stdout) == (1, True)


def test_a_file_that_lies_above_is_taken_only_of_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names is run: whoever may write to a shared folder above must not choose it."""
    path = write(folder, 'tools = ["shop"]')
    monkeypatch.chdir(folder / "below")
    assert project().path == path
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid == 0:
        os.chown(path, 12_345, -1)
    with pytest.raises(ProjectFileInvalid, match="another user's; if you trust it, name it: --config"):
        project()
    assert project(path).path == path


def test_the_nearest_file_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 'tools = ["shop"]')
    write(folder / "below", 'policy = "../policy.toml"')
    monkeypatch.chdir(folder / "below")
    found = project()
    assert (found.file.tools, found.data) == (None, folder / "below" / ".aetheris")
    assert (folder / "below" / found.settings()["AETHERIS_POLICY"]).samefile(folder / "policy.toml")


def test_flags_beat_the_environment_and_the_environment_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 'tools = ["shop"]\npolicy = "policy.toml"\nexecutors = 3\n')
    monkeypatch.setenv("AETHERIS_POLICY", "")  # an empty one says nothing
    with given(None) as here:
        assert (os.environ["AETHERIS_TOOLS"], os.environ["AETHERIS_POLICY"]) == ("shop", str(folder / "policy.toml"))
        assert (here.origin("tools"), here.origin("policy")) == ("aetheris.toml:1", "aetheris.toml:2")
        assert here.executors == 3
    monkeypatch.setenv("AETHERIS_TOOLS", "other")
    monkeypatch.setenv("AETHERIS_POLICY", "below/p.toml")
    with given(None) as here:
        assert (os.environ["AETHERIS_TOOLS"], here.origin("tools")) == ("other", "AETHERIS_TOOLS")
        assert os.environ["AETHERIS_POLICY"] == str(folder / "below" / "p.toml")
    with given(None, "third", 0) as here:
        assert (os.environ["AETHERIS_TOOLS"], here.origin("tools"), here.executors) == ("third", "--tools", 0)
    with given(None, "") as here:
        assert (os.environ["AETHERIS_TOOLS"], here.origin("tools")) == ("", "--tools")
    assert (os.environ["AETHERIS_TOOLS"], os.environ["AETHERIS_POLICY"]) == ("other", "below/p.toml")


def test_processes_of_tools_are_settings_of_executor_and_prober(folder: Path) -> None:
    write(folder, 'tool_isolation = "process"\ntool_env = ["SHOP_URL", "SHOP_KEY"]\n')
    with given(None):
        settings = load(ToolSettings)
    assert (settings.tool_isolation, settings.tool_env) == ("process", ("SHOP_URL", "SHOP_KEY"))
    with pytest.raises(SettingInvalid, match="AETHERIS_TOOL_ENV"), alone({"AETHERIS_TOOL_ENV": "AETHERIS_KAFKA"}):
        load(ToolSettings)
    with alone({"AETHERIS_TOOL_ISOLATION": ""}):
        assert load(ToolSettings).tool_isolation == "none"


def test_paths_of_file_and_environment_mean_the_same_from_a_folder_below(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "models.toml").touch()
    write(folder, 'policy = "policy.toml"\nmodels = ["a:b", "models.toml"]\ndata = "kept"\n')
    monkeypatch.chdir(folder / "below")
    monkeypatch.setenv("AETHERIS_SECRETS", "s.toml")
    with given(None):
        assert Path.cwd() == folder
        assert os.environ["AETHERIS_SECRETS"] == str(folder / "below" / "s.toml")
        assert os.environ["AETHERIS_MODELS"] == f"a:b,{folder / 'models.toml'}"
    assert project().data == folder / "kept"
    assert Path.cwd() == folder / "below"


def test_check_below_reads_the_tools_and_the_policy_of_the_file(folder: Path) -> None:
    write(folder, 'tools = ["shop"]\npolicy = "policy.toml"\n')
    done = aetheris(folder / "below", "check", "--json")
    loaded = {"tools": "shop: 1 tools", "policy": f"{folder / 'policy.toml'}: 1 rules"}
    origins = {"tools": f"{folder / 'aetheris.toml'}:1", "policy": f"{folder / 'aetheris.toml'}:2"}
    assert (done.returncode, json.loads(done.stdout)) == (0, {"faults": [], "loaded": loaded, "from": origins})


def test_commands_below_find_the_data_folder_of_the_file(folder: Path) -> None:
    write(folder, 'data = "kept"\n')
    assert f"Nothing runs on {folder / 'kept'}" in aetheris(folder / "below", "jobs").stderr
    assert "Nothing runs on mine" in aetheris(folder / "below", "jobs", "--data", "mine").stderr
    assert "Nothing runs on ours" in aetheris(folder / "below", "jobs", AETHERIS_DATA="ours").stderr
    named = aetheris(Path("/"), "jobs", AETHERIS_CONFIG=str(folder / "aetheris.toml"))
    assert f"Nothing runs on {folder / 'kept'}" in named.stderr


def test_what_differs_from_a_former_start_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 'tools = ["shop"]\npolicy = "policy.toml"\n')
    monkeypatch.setenv("AETHERIS_REDIS", "redis://u:hunter22@there:1/0")
    with given(None) as here:
        before = here.loaded()
        assert here.differences(before) == []
    assert "hunter22" not in json.dumps(before)
    (folder / "policy.toml").write_text("# another\n")
    (folder / "shop.py").write_text(OK + "\n")
    write(folder, 'tools = ["shop"]\npolicy = "policy.toml"\nexecutors = 2\n')
    monkeypatch.setenv("AETHERIS_LEASE_TTL_S", "7")
    with given(None) as here:
        assert here.differences(before) == [
            "AETHERIS_LEASE_TTL_S was not set, and is 7 now (AETHERIS_LEASE_TTL_S)",
            "executors was 1, and is 2 now",
            "policy.toml has changed",
            "shop.py has changed",
        ]
    write(folder, 'tools = ["shop"]\n')
    with given(None) as here:
        assert f"policy was {folder / 'policy.toml'}, and is not set now" in here.differences(before)
        assert "policy.toml is used no more" in here.differences(before)


def test_so_is_what_the_tools_import_of_the_project(folder: Path) -> None:
    """A helper beside them, at any remove and in a package; not what is installed, not what nobody imports."""
    parts = {
        "shop.py": f"from desk import prices\nimport json, pydantic\n{OK}",
        "desk/__init__.py": "",
        "desk/prices.py": "from . import rounding\nfrom .rates import EUR\n",
        "desk/rounding.py": "",
        "desk/rates.py": "import os.path, no_such_module\nEUR = 1\n",
        "desk/unused.py": "",
        ".venv/lib/site-packages/other.py": "",
    }
    for name, text in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write(folder, 'tools = ["shop"]\n')
    with given(None) as here:
        before = here.loaded()
        read = {Path(one.removeprefix("file ")) for one in before if one.startswith("file ")}
        imported = ("shop", "desk/__init__", "desk/prices", "desk/rounding", "desk/rates")
        assert read == {folder / f"{name}.py" for name in imported}
    (folder / "desk" / "rates.py").write_text("EUR = 2\n")
    (folder / "desk" / "rounding.py").write_text("from desk import unused\n")
    (folder / "desk" / "unused.py").write_text("half = 0.5\n")
    with given(None) as here:
        changed = ["desk/rates.py has changed", "desk/rounding.py has changed", "desk/unused.py is new"]
        assert here.differences(before) == changed
    (folder / "desk" / "rounding.py").write_text("from desk import\n")
    with given(None) as here:
        assert here.differences(before)[-1] == "desk/rounding.py has changed", "also where it is no Python"


def test_settings_say_where_they_come_from(folder: Path) -> None:
    write(folder, 'policy = "policy.toml"\n')
    done = aetheris(folder, "config", "--json", AETHERIS_DRAIN_S="9")
    origins = {one["variable"]: one["origin"] for one in json.loads(done.stdout)}
    assert origins["AETHERIS_POLICY"] == "aetheris.toml:1"
    assert (origins["AETHERIS_DRAIN_S"], origins["AETHERIS_SECRETS"]) == ("AETHERIS_DRAIN_S", "default")
